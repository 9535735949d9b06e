#include "src/placement/greedy.h"

#include <gtest/gtest.h>

#include "tests/placement/instances.h"

namespace stowage::placement {
namespace {

using test::expect_sound;
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
      items.push_back({backward + op, backward + op + 2 + op % 3, bytes + 512});
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

TEST(Greedy, WhatIsNearlyTheBoundEndsIt) {
  EXPECT_EQ(nearly(65535), 65535U);
  EXPECT_EQ(nearly(1 << 20), (1U << 20U) + 16);
  std::mt19937_64 random(3);
  for (int round = 0; round < 100; ++round) {
    const Items items = test::random_items(random, 60, 1'000'000'000);
    const PlacementResult soon = place_greedily(items, 1, {}, Goal::nearly);
    const PlacementResult late = place_greedily(items, 1, {}, Goal::bound);
    expect_sound(items, 1, soon);
    expect_sound(items, 1, late);
    EXPECT_LE(late.peak, soon.peak);
    if (soon.peak != late.peak) {
      EXPECT_LE(soon.peak, nearly(soon.lower_bound));
    }
  }
}

// More than the orders may look at: every item is live together with every other.
TEST(Greedy, WhatIsTooMuchWorkIsPlacedAllTheSame) {
  Items items;
  for (std::int64_t i = 0; i < 40'000; ++i) items.push_back({i, 40'000 + i % 1000 + 1, 1 + Bytes(i) % 7});
  const PlacementResult result = place_greedily(items, 1, {}, Goal::bound);
  EXPECT_EQ(check_placement(items, result, 1), "");
}

}  // namespace
}  // namespace stowage::placement
