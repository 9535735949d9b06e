#include "src/placement/time_beam.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "src/placement/greedy.h"
#include "stowage/error.h"

namespace stowage::placement {
namespace {

constexpr Bytes alignment = 256;

// Layers whose tensors of three sizes come in and go, each behind the one before, beside some that stay
// longer.
std::vector<PlacementItem> layers(std::uint32_t seed, int count) {
  constexpr Bytes sizes[] = {36864, 12200, 49152, 49001};  // not all are aligned
  std::minstd_rand dice(seed);
  std::vector<PlacementItem> items;
  std::int64_t now = 0;
  for (int layer = 0; layer < count; ++layer) {
    for (Bytes bytes : sizes) {
      items.push_back({now, now + 6 + static_cast<std::int64_t>(dice() % 5), bytes});
      now += 1 + static_cast<std::int64_t>(dice() % 2);
    }
    items.push_back({now, now + 25, 16384});
  }
  return items;
}

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

// The least of some heights under which all find places.
Bytes least_height(const std::vector<PlacementItem>& items) {
  const Bytes live = peak_live_bytes(items);
  for (Bytes part = 0; part <= 40; ++part) {
    const Bytes height = live + live * part / 100;
    if (const auto offsets = place_in_time(items, {.height = height, .alignment = alignment})) {
      EXPECT_EQ(wrong(items, *offsets), "");
      EXPECT_LE(peak(items, *offsets), height);
      return height;
    }
  }
  return ~Bytes{0};
}

TEST(TimeBeam, IsLowerThanGreedyOrdersWhereFewSizesStreamThrough) {
  int lower = 0;
  for (std::uint32_t seed = 1; seed <= 10; ++seed) {
    const std::vector<PlacementItem> items = layers(seed, 100);
    const Bytes height = least_height(items);
    if (height < place_greedily(items, alignment, {}, Goal::nearly).peak) ++lower;
  }
  EXPECT_GE(lower, 7);
}

TEST(TimeBeam, SaysWhereThereIsNoRoom) {
  const std::vector<PlacementItem> items{{0, 2, 4096}, {1, 3, 4096}};
  EXPECT_FALSE(place_in_time(items, {.height = 8191, .alignment = alignment}));
  const auto offsets = place_in_time(items, {.height = 8192, .alignment = alignment});
  ASSERT_TRUE(offsets);
  EXPECT_EQ(wrong(items, *offsets), "");
  EXPECT_TRUE(place_in_time({}, {.height = 0}).value().empty());
}

// Of two gaps that hold the last item only one leaves room for what follows: the other must be carried along.
TEST(TimeBeam, CarriesSeveralPlacementsAlong) {
  int narrow = 0, wide = 0;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    const std::vector<PlacementItem> items = layers(seed, 30);
    const Bytes height = peak_live_bytes(items) * 104 / 100;
    narrow += place_in_time(items, {.height = height, .alignment = alignment, .width = 1}) ? 1 : 0;
    wide += place_in_time(items, {.height = height, .alignment = alignment, .width = 64}) ? 1 : 0;
  }
  EXPECT_GT(wide, narrow + 10);
}

// Where one placement that is carried along comes to an end, more of them are from a little before.
TEST(TimeBeam, GoesBackToCarryMoreAlong) {
  int found = 0;
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    const std::vector<PlacementItem> items = layers(seed, 60);
    const Bytes height = peak_live_bytes(items) * 104 / 100;
    const auto offsets = place_in_time(items, {.height = height, .alignment = alignment, .width = 2});
    if (!offsets) continue;
    EXPECT_EQ(wrong(items, *offsets), "") << seed;
    EXPECT_LE(peak(items, *offsets), height) << seed;
    ++found;
  }
  EXPECT_GT(found, 15);
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

TEST(TimeBeam, RefusesItemsThatAreNone) {
  EXPECT_THROW(static_cast<void>(place_in_time(std::vector<PlacementItem>{{1, 1, 8}}, {.height = 8})),
               InvalidInput);
}

}  // namespace
}  // namespace stowage::placement
