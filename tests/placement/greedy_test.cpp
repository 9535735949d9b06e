#include "src/placement/methods.h"

#include <gtest/gtest.h>

#include "tests/placement/instances.h"

namespace stowage::placement {
namespace {

using test::Items;

// As a training step of many layers: for each layer values from its forward to its backward, and short ones.
Items layers(std::int64_t count) {
  Items items;
  for (std::int64_t l = 0; l < count; ++l) {
    const std::int64_t forward = 20 * l, backward = 20 * (2 * count - l);
    if (l % 64 == 0) items.push_back({forward, backward + 20, 3 << 20});
    for (std::int64_t op = 0; op < 20; ++op) {
      const Bytes bytes = Bytes{4096} << ((op * 7) % 5);
      items.push_back({forward + op, forward + op + 1 + op % 4, bytes});
      items.push_back({backward + op, backward + op + 2 + op % 3, bytes + 500});
    }
  }
  return items;
}

TEST(Greedy, FortyThousandItemsOfATrainingStepComeWithinAHundredth) {
  const Items items = layers(1000);
  ASSERT_GT(items.size(), 40'000U);
  const PlacementResult result = place_greedily(items, 256, {}, Goal::nearly);
  EXPECT_EQ(check_placement(items, result, 256), "");
  EXPECT_LE(result.peak, result.lower_bound + result.lower_bound / 100);
}

// More than the orders may look at: every item is live together with every other.
TEST(Greedy, WhatIsTooMuchWorkIsPlacedAllTheSame) {
  Items items;
  for (std::int64_t i = 0; i < 40'000; ++i) items.push_back({i, 40'000 + i % 1000 + 1, 1 + Bytes(i) % 7});
  const PlacementResult result = place_greedily(items, 1, {}, Goal::bound);
  EXPECT_EQ(check_placement(items, result, 1), "");
}

TEST(Sweep, PlacesAnyItemsAndEqualSizesAtTheirBound) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    Items items = test::random_items(random, 1 + static_cast<int>(random() % 80), 2000);
    const Bytes alignment = Bytes{1} << (random() % 9);
    if (round % 2 == 0)
      for (PlacementItem& item : items) item.bytes = alignment;
    const std::vector<Bytes> offsets = sweep(items, alignment);
    EXPECT_FALSE(test::overlap(items, offsets));
    Bytes peak = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(offsets[i] % alignment, 0U);
      peak = std::max(peak, offsets[i] + items[i].bytes);
    }
    if (round % 2 == 0) {
      EXPECT_EQ(peak, peak_live_bytes(items));
    }
  }
}

// At 1 gaps of 4 and 2 bytes are free; then all that is below the last.
TEST(Sweep, TakesTheTightestGapAndJoinsGaps) {
  EXPECT_EQ(sweep(Items{{0, 1, 4}, {0, 2, 3}, {0, 1, 2}, {0, 3, 1}, {1, 2, 2}, {2, 3, 9}}, 1),
            (std::vector<Bytes>{0, 4, 7, 9, 7, 0}));
}

}  // namespace
}  // namespace stowage::placement
