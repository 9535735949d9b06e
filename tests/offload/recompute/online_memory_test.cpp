#include "offload/recompute/online_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "offload/recompute/online_history.h"

namespace stowage::online {
namespace {

// A range of 100 bytes: a 30, b 10, c 20, d 25, and 15 free.
class Memory : public ::testing::Test {
 protected:
  Memory() {
    constexpr std::array<Bytes, 4> sizes = {30, 10, 20, 25};
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      tensors[i].name = std::string(1, static_cast<char>('a' + i));
      memory.settle(*memory.take(sizes[i], tensors[i]));
    }
  }
  // By the names of the tensors that stay, and what the others cost.
  OnlineMemory::Price price(const std::string& staying, std::array<double, 4> costs) const {
    return [this, staying, costs](const RememberedTensor& tensor) -> std::optional<double> {
      if (staying.find(tensor.name) != std::string::npos) return std::nullopt;
      return costs[static_cast<std::size_t>(&tensor - tensors.data())];
    };
  }
  std::string names(const std::optional<Window>& window) const {
    if (!window) return "none";
    std::string result;
    for (const RememberedTensor* tensor : window->tensors) result += tensor->name;
    return result;
  }

  std::array<RememberedTensor, 5> tensors;
  OnlineMemory memory{100};
};

TEST_F(Memory, TakesTheSmallestGapThatIsLargeEnough) {
  memory.give_back(30);  // b
  EXPECT_EQ(memory.take(10, tensors[4]), 30U);
  EXPECT_EQ(memory.take(12, tensors[4]), 85U);
  EXPECT_EQ(memory.take(4, tensors[4]), std::nullopt);
  EXPECT_EQ(memory.free_bytes(), 3U);
}

TEST_F(Memory, JoinsGaps) {
  memory.give_back(0);
  memory.give_back(40);
  EXPECT_EQ(memory.take(31, tensors[4]), std::nullopt);
  memory.give_back(30);  // between them
  EXPECT_EQ(memory.take(60, tensors[4]), 0U);
  memory.give_back(60);
  EXPECT_EQ(memory.take(40, tensors[4]), 60U);
  EXPECT_EQ(memory.free_bytes(), 0U);
}

TEST_F(Memory, FindsTheCheapestWindow) {
  EXPECT_EQ(names(memory.cheapest_window(30, price("", {9, 1, 1, 3}))), "bc");
  EXPECT_EQ(names(memory.cheapest_window(30, price("", {1.5, 1, 1, 3}))), "a");
  EXPECT_EQ(names(memory.cheapest_window(40, price("", {9, 1, 1, 3}))), "d");  // with the gap behind it
  EXPECT_EQ(names(memory.cheapest_window(15, price("", {9, 1, 1, 3}))), "");   // the gap alone
  EXPECT_EQ(names(memory.cheapest_window(30, price("b", {9, 1, 1, 3}))), "d");
  EXPECT_EQ(names(memory.cheapest_window(61, price("b", {9, 1, 1, 3}))), "none");
  EXPECT_EQ(names(memory.cheapest_window(100, price("", {9, 1, 1, 3}))), "abcd");
  EXPECT_EQ(names(memory.cheapest_window(101, price("", {9, 1, 1, 3}))), "none");
}

// Evicting is free: then no more than must be.
TEST_F(Memory, AmongEqualsTheFewestBytes) {
  EXPECT_EQ(names(memory.cheapest_window(20, price("", {0, 0, 0, 0}))), "c");
}

TEST_F(Memory, WhatIsBeingWrittenStays) {
  memory.give_back(30);
  ASSERT_EQ(memory.take(10, tensors[4]), 30U);
  EXPECT_EQ(names(memory.cheapest_window(31, price("", {1, 1, 1, 1}))), "d");
  EXPECT_EQ(names(memory.cheapest_window(61, price("", {1, 1, 1, 1}))), "none");
  EXPECT_EQ(memory.largest_window(price("", {1, 1, 1, 1})), 60U);
  EXPECT_EQ(memory.largest_window(price("d", {1, 1, 1, 1})), 30U);
}

// Against all windows, one by one: random ranges, gaps, prices and tensors that stay.
TEST(MemoryWindows, AreTheCheapestOfAll) {
  std::mt19937_64 draw(1);
  for (int round = 0; round < 500; ++round) {
    OnlineMemory memory(400);
    std::vector<RememberedTensor> tensors(40);
    std::vector<std::optional<double>> prices(tensors.size());
    std::vector<Bytes> offsets;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto offset = memory.take(1 + draw() % 30, tensors[i]);
      if (!offset) break;
      memory.settle(*offset);
      offsets.push_back(*offset);
      if (draw() % 5 != 0) prices[i] = static_cast<double>(draw() % 1000) * (draw() % 2 == 0 ? 1e-9 : 1e9);
    }
    for (Bytes offset : offsets)
      if (draw() % 4 == 0) memory.give_back(offset);
    const OnlineMemory::Price price = [&](const RememberedTensor& tensor) {
      return prices[static_cast<std::size_t>(&tensor - tensors.data())];
    };
    for (Bytes bytes = 1; bytes < 200; bytes += 7) {
      std::optional<double> least;
      for (auto first = memory.blocks().begin(); first != memory.blocks().end(); ++first) {
        Bytes found = 0;
        double cost = 0;
        for (auto last = first; last != memory.blocks().end() && found < bytes; ++last) {
          const RememberedTensor* owner = last->second.owner;
          if (owner != nullptr && !price(*owner)) break;
          found += last->second.bytes;
          if (owner != nullptr) cost += *price(*owner);
        }
        if (found >= bytes && (!least || cost < *least)) least = cost;
      }
      const std::optional<Window> window = memory.cheapest_window(bytes, price);
      ASSERT_EQ(window.has_value(), least.has_value());
      if (!window) continue;
      EXPECT_DOUBLE_EQ(window->cost, *least);
      double cost = 0;
      for (const RememberedTensor* tensor : window->tensors) cost += *price(*tensor);
      EXPECT_DOUBLE_EQ(cost, *least);
    }
  }
}

}  // namespace
}  // namespace stowage::online
