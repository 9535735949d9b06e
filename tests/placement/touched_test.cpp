#include "src/placement/touched.h"

#include <gtest/gtest.h>

#include <random>

namespace stowage::placement {
namespace {

TEST(MostTouched, CountsGranulesOnceHoweverManyItemsTouchThem) {
  const std::vector<PlacementItem> items = {{0, 2, 10}, {0, 2, 10}, {1, 3, 25}};
  EXPECT_EQ(most_touched(items, std::vector<Bytes>{0, 10, 20}, 10), 5U);
  EXPECT_EQ(most_touched(items, std::vector<Bytes>{0, 10, 20}, 20), 3U);
  EXPECT_EQ(most_touched(items, std::vector<Bytes>{0, 15, 30}, 20), 3U);
  EXPECT_EQ(most_touched(items, std::vector<Bytes>{0, 10, 20}, 1000), 1U);
}

TEST(MostTouched, WhatGoesDoesSoBeforeWhatComes) {
  const std::vector<PlacementItem> items = {{0, 2, 30}, {2, 4, 40}};
  EXPECT_EQ(most_touched(items, std::vector<Bytes>{0, 100}, 10), 4U);
}

std::vector<PlacementItem> random_items(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<PlacementItem> items;
  for (int i = 0; i < 1500; ++i) {
    const auto first = static_cast<std::int64_t>(random() % 1000);
    items.push_back(
        {first, first + 1 + static_cast<std::int64_t>(random() % 40), 1 + random() % (24U << 20U)});
  }
  return items;
}

TEST(PlaceForGranules, GivesPlacesThatTouchFewAtOnce) {
  constexpr Bytes granule = 2_MiB;
  std::uint64_t touched = 0, of_low_ones = 0;
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    const std::vector<PlacementItem> items = random_items(seed);
    PlacementResult result;
    result.offsets = place_for_granules(items, 512, granule);
    for (std::size_t i = 0; i < items.size(); ++i)
      result.peak = std::max(result.peak, result.offsets[i] + items[i].bytes);
    const Bytes live = peak_live_bytes(items);
    result.lower_bound = result.proven_bound = live;
    EXPECT_EQ(check_placement(items, result, 512), "");
    touched += most_touched(items, result.offsets, granule);
    of_low_ones += most_touched(items, place(items, 512).offsets, granule);
    EXPECT_LE(most_touched(items, result.offsets, granule) * granule, live + live / 20) << seed;
    EXPECT_EQ(place_for_granules(items, 512, granule), result.offsets);
  }
  EXPECT_LT(touched, of_low_ones);
  EXPECT_TRUE(place_for_granules({}, 512, granule).empty());
}

}  // namespace
}  // namespace stowage::placement
