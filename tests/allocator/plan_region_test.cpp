#include "allocator/plan_region.h"

#include <gtest/gtest.h>

namespace stowage::caching {
namespace {

using Runs = std::vector<Interval>;

class PlanRegionTest : public testing::Test {
 protected:
  PlanRegion region{{1000, 2000}, 100};
  LaneClock x, y;
};

TEST_F(PlanRegionTest, KnowsWhatIsMissing) {
  const Interval at = region.at(50, 300);
  EXPECT_EQ(at, (Interval{1050, 1350}));
  EXPECT_EQ(region.missing(at), (Runs{{10, 14}}));
  region.note_mapped({11, 12});
  EXPECT_EQ(region.missing(at), (Runs{{10, 11}, {12, 14}}));
  region.note_mapped({10, 11});
  region.note_mapped({12, 14});
  EXPECT_TRUE(region.missing(at).empty());
  EXPECT_EQ(region.mapped(), 4u);
}

TEST_F(PlanRegionTest, LendsGranulesThatNoBlockTouches) {
  region.note_mapped({10, 16});
  region.take(region.at(50, 100));  // of granules 10 and 11
  region.take(region.at(150, 100));
  EXPECT_EQ(region.held(), 200u);
  EXPECT_EQ(region.recyclable({}, 10, {}), (Runs{{13, 16}}));
  EXPECT_EQ(region.recyclable({}, 2, {}), (Runs{{14, 16}}));
  EXPECT_EQ(region.recyclable({}, 10, {1450, 1460}), (Runs{{15, 16}, {13, 14}}));
  region.give(region.at(50, 100), {});
  EXPECT_EQ(region.recyclable({}, 10, {}), (Runs{{13, 16}, {10, 11}}));  // the other block touches 11
  region.give(region.at(150, 100), {});
  EXPECT_EQ(region.recyclable({}, 10, {}), (Runs{{10, 16}}));
  EXPECT_EQ(region.held(), 0u);
}

TEST_F(PlanRegionTest, LendsNothingThatIsPending) {
  region.note_mapped({10, 12});
  region.take(region.at(0, 200));
  region.give(region.at(0, 200), {Tag{&x, 1}});
  EXPECT_TRUE(region.recyclable({}, 10, {}).empty());
  x.passed = 1;
  EXPECT_EQ(region.recyclable({}, 10, {}), (Runs{{10, 12}}));
}

TEST_F(PlanRegionTest, SaysWhomABlockWaitsFor) {
  region.note_mapped({10, 13});
  region.take(region.at(0, 100));
  region.take(region.at(100, 100));
  region.give(region.at(0, 100), {Tag{&x, 1}});
  region.give(region.at(100, 100), {Tag{&x, 2}, Tag{&y, 1}});
  EXPECT_TRUE(region.waits(region.at(0, 100), x).empty());
  EXPECT_EQ(region.waits(region.at(0, 100), y), (Tags{{&x, 1}}));
  EXPECT_EQ(region.waits(region.at(50, 100), x), (Tags{{&y, 1}}));
  region.take(region.at(50, 100));  // whoever took it has waited
  region.give(region.at(50, 100), {});
  EXPECT_TRUE(region.waits(region.at(50, 100), y).empty());
  EXPECT_EQ(region.waits(region.at(0, 50), y), (Tags{{&x, 1}}));
}

}  // namespace
}  // namespace stowage::caching
