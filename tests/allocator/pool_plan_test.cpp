#include "allocator/pool_plan.h"

#include <gtest/gtest.h>

namespace stowage {
namespace {

using Indexes = std::vector<std::uint32_t>;
constexpr Bytes granule = 2_MiB;

TEST(PoolPlan, SharesBytesWithinAStream) {
  const PoolPlan plan = make_pool_plan({{100, 0, 0, 1}, {100, 0, 2, 3}}, 64, granule);
  EXPECT_EQ(plan.bytes, 100U);
  EXPECT_EQ(plan.requests[0].offset, plan.requests[1].offset);
  EXPECT_EQ(plan.frees, (Indexes{0, 1}));
  EXPECT_EQ(plan.frees_before, (Indexes{0, 1}));
}

TEST(PoolPlan, SharesNoBytesBetweenStreams) {
  const PoolPlan plan = make_pool_plan({{100, 0, 0, 1}, {100, 7, 2, 3}}, 64, granule);
  EXPECT_EQ(plan.bytes, 228U);
  EXPECT_EQ(plan.requests[1].offset, 128U);
}

TEST(PoolPlan, SharesBytesBetweenStreamsWhereThatSavesMuch) {
  const PoolPlan plan = make_pool_plan({{30_MiB, 0, 0, 1}, {20_MiB, 7, 2, 3}}, 64, granule);
  EXPECT_EQ(plan.bytes, 30_MiB);
  EXPECT_EQ(plan.requests[1].offset, 0U);
  EXPECT_EQ(make_pool_plan({{30_MiB, 0, 0, 1}, {2_MiB, 7, 2, 3}}, 64, granule).bytes, 32_MiB);
  EXPECT_EQ(make_pool_plan({{30_MiB, 0, 0, 3}, {20_MiB, 7, 1, 2}}, 64, granule).bytes, 50_MiB);
}

TEST(PoolPlan, LeavesOutWhatStays) {
  const PoolPlan plan = make_pool_plan({{100, 0, 0, LoggedRequest::never}, {50, 0, 1, 2}}, 64, granule);
  EXPECT_FALSE(plan.requests[0].has_offset);
  EXPECT_TRUE(plan.requests[1].has_offset);
  EXPECT_EQ(plan.bytes, 50U);
  EXPECT_FALSE(plan.empty());
  EXPECT_TRUE(make_pool_plan({{100, 0, 0, LoggedRequest::never}}, 64, granule).empty());
  EXPECT_TRUE(make_pool_plan({}, 64, granule).empty());
}

TEST(PoolPlan, KnowsWhatIsFreedBeforeEachRequest) {
  // made: a b . . c .; freed: . . b a . c
  const PoolPlan plan = make_pool_plan({{1, 0, 0, 3}, {1, 0, 1, 2}, {1, 0, 4, 5}}, 1, granule);
  EXPECT_EQ(plan.frees, (Indexes{1, 0, 2}));
  EXPECT_EQ(plan.frees_before, (Indexes{0, 0, 2}));
}

// Found by chance: no placement ends below 15 granules, though no more than 14 are ever live.
const std::vector<LoggedRequest> unfit = {
    {6 * granule, 0, 0, 5},  {6 * granule, 0, 1, 2},   {4 * granule, 0, 3, 11},
    {4 * granule, 0, 4, 8},  {2 * granule, 0, 6, 13},  {3 * granule, 0, 7, 10},
    {5 * granule, 0, 9, 15}, {6 * granule, 0, 12, 17}, {3 * granule, 0, 14, 16}};

TEST(PoolPlan, BacksWhatIsTouchedAtOnceWhereOffsetsLeaveGaps) {
  const PoolPlan plan = make_pool_plan(unfit, 512, granule);
  EXPECT_EQ(plan.bytes, 15 * granule);
  EXPECT_EQ(plan.backed, 14 * granule);
}

TEST(PoolPlan, BacksAllOfATightOne) {
  const PoolPlan plan = make_pool_plan({{30_MiB, 0, 0, 2}, {20_MiB, 7, 1, 3}}, 64, granule);
  EXPECT_EQ(plan.bytes, 50_MiB);
  EXPECT_EQ(plan.backed, 50_MiB);
}

}  // namespace
}  // namespace stowage
