#include "src/placement/methods.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace stowage::placement {
namespace {

constexpr Bytes alignment = 256;

std::string wrong(const std::vector<PlacementItem>& items, const std::vector<Bytes>& offsets) {
  PlacementResult result;
  result.offsets = offsets;
  for (std::size_t i = 0; i < items.size(); ++i)
    result.peak = std::max(result.peak, offsets[i] + items[i].bytes);
  return check_placement(items, result, alignment);
}
Bytes peak(const std::vector<PlacementItem>& items, const std::vector<Bytes>& offsets) {
  Bytes peak = 0;
  for (std::size_t i = 0; i < items.size(); ++i) peak = std::max(peak, offsets[i] + items[i].bytes);
  return peak;
}

TEST(TimeBeam, SaysWhereThereIsNoRoom) {
  const std::vector<PlacementItem> items{{0, 2, 4096}, {1, 3, 4096}};
  EXPECT_FALSE(place_in_time(items, {.height = 8191, .alignment = alignment}));
  const auto offsets = place_in_time(items, {.height = 8192, .alignment = alignment});
  ASSERT_TRUE(offsets);
  EXPECT_EQ(wrong(items, *offsets), "");
  const std::vector<PlacementItem> in_turn{{0, 2, 4096}, {2, 4, 4096}};
  EXPECT_TRUE(place_in_time(in_turn, {.height = 4096, .alignment = alignment}));
  EXPECT_TRUE(place_in_time({}, {.height = 0}).value().empty());
}

// Blocks that are all alike, behind a few items that are not and before some more; one item stays through
// them all.
std::vector<PlacementItem> alike_blocks(int count) {
  std::vector<PlacementItem> items{{0, 9, 30000}, {2, 14, 12200}, {5, 9 + 20L * count, 8192}};
  std::int64_t now = 9;
  for (int block = 0; block < count; ++block, now += 20) {
    items.insert(items.end(), {{now, now + 12, 36864},
                               {now + 3, now + 31, 16384},
                               {now + 4, now + 11, 49152},
                               {now + 9, now + 22, 12200},
                               {now + 13, now + 20, 49001}});
  }
  for (std::int64_t i = 0; i < 8; ++i)
    items.push_back({now + i, now + 2 * i + 3, 9000 + 7000 * Bytes(i % 3)});
  return items;
}

TEST(TimeBeam, BlocksThatAreAlikeStandAlike) {
  constexpr int blocks = 80;
  constexpr std::size_t of_block = 5, before = 3;
  const std::vector<PlacementItem> items = alike_blocks(blocks);
  const Bytes live = peak_live_bytes(items);
  int found = 0;
  for (const Bytes percent : {100U, 102U, 105U, 110U}) {
    const auto offsets = place_in_time(items, {.height = live / 100 * percent, .alignment = alignment});
    if (!offsets) continue;
    ++found;
    EXPECT_EQ(wrong(items, *offsets), "") << percent;
    EXPECT_LE(peak(items, *offsets), live / 100 * percent);
    const auto repeat = [&](std::size_t cycle) {
      for (std::size_t i = before + 20 * of_block; i + 20 * of_block < items.size(); ++i)
        if ((*offsets)[i] != (*offsets)[i + cycle * of_block]) return false;
      return true;
    };
    EXPECT_TRUE(repeat(1) || repeat(2) || repeat(3) || repeat(4)) << percent;
  }
  EXPECT_GE(found, 3);
}

// Some blocks are longer than the others: what goes on as before must end in time.
TEST(TimeBeam, RepeatsAreLeftWhereBlocksChange) {
  int found = 0;
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    std::minstd_rand dice(seed);
    std::vector<PlacementItem> items;
    std::int64_t now = 0;
    for (int stretch = 0; stretch < 4; ++stretch) {
      const std::int64_t length = 4 + static_cast<std::int64_t>(dice() % 8);
      const Bytes bytes = 4096 * (1 + dice() % 12);
      const int blocks = 2 + static_cast<int>(dice() % 30);
      for (int block = 0; block < blocks; ++block, now += 6) {
        items.push_back({now, now + length, bytes});
        items.push_back({now + 1, now + 2 * length, 20000});
        items.push_back({now + 3, now + 5, bytes + 300});
      }
      items.push_back({now - 3, now + 40, 7000});
    }
    const Bytes live = peak_live_bytes(items);
    for (const Bytes percent : {102U, 110U, 125U}) {
      const Bytes height = live / 100 * percent;
      const auto offsets = place_in_time(items, {.height = height, .alignment = alignment});
      if (!offsets) continue;
      ++found;
      EXPECT_EQ(wrong(items, *offsets), "") << seed;
      EXPECT_LE(peak(items, *offsets), height) << seed;
    }
  }
  EXPECT_GT(found, 45);
}

}  // namespace
}  // namespace stowage::placement
