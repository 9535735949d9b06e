#include "allocator/pool_plan.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

using Indexes = std::vector<std::uint32_t>;

TEST(PoolPlan, SharesBytesWithinAStream) {
  const PoolPlan plan = make_pool_plan({{100, 0, 0, 1}, {100, 0, 2, 3}}, 64);
  EXPECT_EQ(plan.bytes, 100U);
  EXPECT_EQ(plan.requests[0].offset, plan.requests[1].offset);
  EXPECT_EQ(plan.frees, (Indexes{0, 1}));
  EXPECT_EQ(plan.frees_before, (Indexes{0, 1}));
}

TEST(PoolPlan, SharesNoBytesBetweenStreams) {
  const PoolPlan plan = make_pool_plan({{100, 0, 0, 1}, {100, 7, 2, 3}}, 64);
  EXPECT_EQ(plan.bytes, 228U);
  EXPECT_EQ(plan.requests[1].offset, 128U);
}

TEST(PoolPlan, SharesBytesBetweenStreamsWhereThatSavesMuch) {
  const PoolPlan plan = make_pool_plan({{30_MiB, 0, 0, 1}, {20_MiB, 7, 2, 3}}, 64);
  EXPECT_EQ(plan.bytes, 30_MiB);
  EXPECT_EQ(plan.requests[1].offset, 0U);
  EXPECT_EQ(make_pool_plan({{30_MiB, 0, 0, 1}, {2_MiB, 7, 2, 3}}, 64).bytes, 32_MiB);
  EXPECT_EQ(make_pool_plan({{30_MiB, 0, 0, 3}, {20_MiB, 7, 1, 2}}, 64).bytes, 50_MiB);
}

TEST(PoolPlan, LeavesOutWhatStays) {
  const PoolPlan plan = make_pool_plan({{100, 0, 0, LoggedRequest::never}, {50, 0, 1, 2}}, 64);
  EXPECT_FALSE(plan.requests[0].has_offset);
  EXPECT_TRUE(plan.requests[1].has_offset);
  EXPECT_EQ(plan.bytes, 50U);
  EXPECT_FALSE(plan.empty());
  EXPECT_TRUE(make_pool_plan({{100, 0, 0, LoggedRequest::never}}, 64).empty());
  EXPECT_TRUE(make_pool_plan({}, 64).empty());
}

TEST(PoolPlan, KnowsWhatIsFreedBeforeEachRequest) {
  // made: a b . . c .; freed: . . b a . c
  const PoolPlan plan = make_pool_plan({{1, 0, 0, 3}, {1, 0, 1, 2}, {1, 0, 4, 5}}, 1);
  EXPECT_EQ(plan.frees, (Indexes{1, 0, 2}));
  EXPECT_EQ(plan.frees_before, (Indexes{0, 0, 2}));
}

}  // namespace
}  // namespace stowage
