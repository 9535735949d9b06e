#include "src/device/simulated/memory.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace stowage::simulated {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool is_nan16(std::uint16_t bits, std::uint16_t exponent) {
  return (bits & exponent) == exponent && (bits & static_cast<std::uint16_t>(0x7fff & ~exponent)) != 0;
}

struct alignas(256) Block {
  std::byte bytes[1024] = {};
};

TEST(Poison, IsNanInEveryFloatingType) {
  Block block;
  fill_poison(block.bytes, 1024, Poison::full);
  for (int i = 0; i < 1024; i += 8) EXPECT_TRUE(std::isnan(load<double>(block.bytes + i))) << i;
  for (int i = 0; i < 1024; i += 4) EXPECT_TRUE(std::isnan(load<float>(block.bytes + i))) << i;
  for (int i = 0; i < 1024; i += 2) {
    EXPECT_TRUE(is_nan16(load<std::uint16_t>(block.bytes + i), 0x7c00)) << "f16 at " << i;
    EXPECT_TRUE(is_nan16(load<std::uint16_t>(block.bytes + i), 0x7f80)) << "bf16 at " << i;
  }
}

TEST(Poison, Signals) {  // the quiet bit is clear
  EXPECT_EQ(poison_word & (1ull << 51), 0u);
  EXPECT_EQ(poison_word & (1ull << 22), 0u);
}

TEST(Poison, KeepsItsPhaseAtAnyStart) {
  Block whole;
  fill_poison(whole.bytes, 1024, Poison::full);
  for (Bytes begin = 0; begin < 9; ++begin)
    for (Bytes bytes = 1; bytes < 30; ++bytes) {
      Block part;
      fill_poison(part.bytes + begin, bytes, Poison::full);
      for (Bytes i = 0; i < 64; ++i) {
        const bool inside = i >= begin && i < begin + bytes;
        ASSERT_EQ(part.bytes[i], inside ? whole.bytes[i] : std::byte{0}) << begin << " " << bytes << " " << i;
      }
    }
}

TEST(Poison, SampledMarksBothEndsAndOneWordInEach256Bytes) {
  Block block;
  fill_poison(block.bytes + 8, 1000, Poison::sampled);
  const auto poisoned = [&](int at) { return load<std::uint64_t>(block.bytes + at) == poison_word; };
  std::vector<int> found;
  for (int at = 0; at < 1024; at += 8)
    if (poisoned(at))
      found.push_back(at);
    else
      EXPECT_EQ(load<std::uint64_t>(block.bytes + at), 0u) << at;
  EXPECT_EQ(found, (std::vector<int>{8, 256, 512, 768, 1000}));
}

TEST(Poison, SampledStaysInsideATinyRange) {
  Block block;
  fill_poison(block.bytes + 5, 3, Poison::sampled);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(block.bytes[i] != std::byte{0}, i >= 5 && i < 8) << i;
}

TEST(Poison, NoneTouchesNothing) {
  Block block;
  fill_poison(block.bytes, 1024, Poison::none);
  for (const std::byte value : block.bytes) ASSERT_EQ(value, std::byte{0});
}

}  // namespace
}  // namespace stowage::simulated
