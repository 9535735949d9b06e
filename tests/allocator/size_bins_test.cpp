#include "allocator/size_bins.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <vector>

namespace stowage::caching {
namespace {

constexpr Bytes unit = BlockTable::unit;

TEST(SizeBins, BinsAscendWithSize) {
  std::size_t before = 0;
  for (std::uint64_t units = 1; units < 100000; ++units) {
    const std::size_t bin = SizeBins::bin_of(units);
    ASSERT_GE(bin, before);
    ASSERT_LE(bin, before + 1);
    before = bin;
  }
  EXPECT_LT(SizeBins::bin_of((std::uint64_t{1} << 36) - 1), SizeBins::bins);
}

TEST(SizeBins, TakesTheNewestOfItsSize) {
  SizeBins bins;
  std::vector<std::unique_ptr<Block>> blocks;
  for (const Bytes units : {10, 10, 11, 6400, 6500, 6600}) {
    blocks.push_back(std::make_unique<Block>());
    blocks.back()->at = {0, units * unit};
    bins.put(*blocks.back());
  }
  EXPECT_EQ(bins.take(9 * unit), nullptr);
  EXPECT_EQ(bins.take(10 * unit), blocks[1].get());
  EXPECT_EQ(bins.take(10 * unit), blocks[0].get());
  EXPECT_EQ(bins.take(10 * unit), nullptr);
  EXPECT_EQ(SizeBins::bin_of(6400), SizeBins::bin_of(6500));
  EXPECT_EQ(bins.take(6450 * unit), nullptr);  // a block of its bin is larger: it would lose the rest
  EXPECT_EQ(bins.take(6400 * unit), blocks[3].get());
  EXPECT_FALSE(bins.empty());
}

TEST(SizeBins, LosesNothing) {
  std::mt19937 random(1);
  SizeBins bins;
  std::vector<std::unique_ptr<Block>> blocks;
  std::set<Block*> inside;
  for (int step = 0; step < 3000; ++step) {
    if (random() % 2 == 0) {
      blocks.push_back(std::make_unique<Block>());
      blocks.back()->at = {0, (1 + random() % 300) * unit};
      bins.put(*blocks.back());
      inside.insert(blocks.back().get());
    } else {
      const Bytes bytes = (1 + random() % 300) * unit;
      Block* const block = bins.take(bytes);
      if (block == nullptr) continue;
      ASSERT_EQ(inside.erase(block), 1u);
      ASSERT_EQ(block->at.length(), bytes);
    }
  }
  for (Block* block = bins.take_all(); block != nullptr; block = block->next)
    ASSERT_EQ(inside.erase(block), 1u);
  EXPECT_TRUE(inside.empty());
  EXPECT_TRUE(bins.empty());
}

}  // namespace
}  // namespace stowage::caching
