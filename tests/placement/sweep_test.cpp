#include "src/placement/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/placement/instances.h"

namespace stowage::placement {
namespace {

using test::Items;
using ::testing::ElementsAre;

TEST(Sweep, TakesTheTightestGapAndJoinsGaps) {
  // At 1 gaps of 4 and 2 bytes are free; then all that is below the last.
  const Items items{{0, 1, 4}, {0, 2, 3}, {0, 1, 2}, {0, 3, 1}, {1, 2, 2}, {2, 3, 9}};
  EXPECT_THAT(sweep(items, 1), ElementsAre(0U, 4U, 7U, 9U, 7U, 0U));
}

TEST(Sweep, TheLowestOfEqualGaps) {
  EXPECT_THAT(sweep(Items{{0, 1, 4}, {0, 3, 3}, {0, 2, 2}, {0, 3, 1}, {1, 3, 2}}, 1),
              ElementsAre(0U, 4U, 7U, 9U, 0U));
  EXPECT_THAT(sweep(Items{{0, 1, 8}, {0, 3, 7}, {0, 1, 5}, {0, 3, 4}, {1, 2, 5}, {1, 2, 8}}, 8),
              ElementsAre(0U, 8U, 16U, 24U, 16U, 0U));
}

TEST(Sweep, RandomItemsNeverOverlap) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    const Items items = test::random_items(random, 1 + static_cast<int>(random() % 80), 2000);
    const Bytes alignment = Bytes{1} << (random() % 9);
    const std::vector<Bytes> offsets = sweep(items, alignment);
    EXPECT_FALSE(test::overlap(items, offsets));
    for (const Bytes offset : offsets) EXPECT_EQ(offset % alignment, 0U);
  }
}

}  // namespace
}  // namespace stowage::placement
