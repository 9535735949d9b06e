#include "allocator/planned_pool.h"

#include <gtest/gtest.h>

#include <deque>

namespace stowage {
namespace {

using Offset = std::optional<Bytes>;
using Tickets = std::vector<PlannedPool::Ticket>;

class PlannedPoolTest : public ::testing::Test {
 protected:
  // One after the other, each freed before the next is made.
  std::vector<Offset> run(const std::vector<Bytes>& sizes, std::uint64_t stream = 0) {
    std::vector<Offset> offsets;
    for (const Bytes bytes : sizes) {
      const PlannedPool::Block block = pool_.allocate(bytes, stream);
      offsets.push_back(block.offset);
      pool_.free(block.ticket);
    }
    return offsets;
  }
  // All of them, the first kept until the last is made: every offset is different.
  std::vector<Offset> run_nested(const std::vector<Bytes>& sizes) {
    std::vector<Offset> offsets;
    Tickets tickets;
    for (const Bytes bytes : sizes) {
      const PlannedPool::Block block = pool_.allocate(bytes, 0);
      offsets.push_back(block.offset);
      tickets.push_back(block.ticket);
    }
    for (const PlannedPool::Ticket ticket : tickets) pool_.free(ticket);
    return offsets;
  }
  std::size_t served(const std::vector<Offset>& offsets) const {
    return static_cast<std::size_t>(std::count_if(offsets.begin(), offsets.end(),
                                                  [](const Offset& offset) { return offset.has_value(); }));
  }

  PlannedPool pool_;
};

TEST_F(PlannedPoolTest, RecordsThenServesByIndex) {
  pool_.begin_iteration();
  EXPECT_EQ(served(run_nested({1000, 2000, 3000})), 0U);
  EXPECT_EQ(pool_.bytes(), 0U);
  pool_.begin_iteration();
  EXPECT_EQ(pool_.bytes(), 1024U + 2048 + 3000);
  EXPECT_EQ(served(run_nested({1000, 2000, 3000})), 3U);
  pool_.begin_iteration();
  EXPECT_EQ(served(run_nested({1000, 2000, 3000})), 3U);
  EXPECT_EQ(pool_.statistics().plans, 1U);
  EXPECT_EQ(pool_.statistics().hits, 6U);
  EXPECT_EQ(pool_.statistics().misses, 0U);
}

TEST_F(PlannedPoolTest, ChecksSizeAndStream) {
  pool_.begin_iteration();
  run({100, 200, 300});
  pool_.begin_iteration();
  EXPECT_EQ(run({100, 201, 300}), (std::vector<Offset>{0, {}, 0}));
  pool_.begin_iteration();
  EXPECT_EQ(served(run({100}, 1)), 0U);
  EXPECT_EQ(served(run({100}, 0)), 1U);
  EXPECT_EQ(pool_.statistics().misses, 2U);
}

TEST_F(PlannedPoolTest, FindsItsPlaceAgainAfterChangesOfOrder) {
  const std::vector<Bytes> usual{100, 200, 300, 400, 500};
  pool_.begin_iteration();
  run(usual);
  pool_.begin_iteration();
  EXPECT_EQ(served(run({100, 400, 500})), 3U);  // two are left out
  pool_.begin_iteration();
  EXPECT_EQ(served(run({100, 111, 200, 222, 300, 400, 500})), 5U);  // two come between
  pool_.begin_iteration();
  EXPECT_EQ(served(run({100, 300, 200, 400, 500})), 4U);  // two change places
  EXPECT_EQ(pool_.statistics().misses, 3U);
  EXPECT_TRUE(pool_.is_planned());
}

TEST_F(PlannedPoolTest, ChecksOverlapWithWhatIsFreedLate) {
  pool_.begin_iteration();
  run({100, 100, 100});
  pool_.begin_iteration();
  const PlannedPool::Block late = pool_.allocate(100, 0);
  EXPECT_EQ(late.offset, Bytes{0});
  EXPECT_EQ(pool_.allocate(100, 0).offset, std::nullopt);
  pool_.free(late.ticket);
  EXPECT_EQ(pool_.allocate(100, 0).offset, Bytes{0});
}

TEST_F(PlannedPoolTest, ChecksOverlapWithBlocksOfTheIterationBefore) {
  pool_.begin_iteration();
  run_nested({100, 100});
  pool_.begin_iteration();
  pool_.free(pool_.allocate(100, 0).ticket);
  const PlannedPool::Block kept = pool_.allocate(100, 0);
  ASSERT_TRUE(kept.offset);
  pool_.begin_iteration();
  EXPECT_TRUE(pool_.allocate(100, 0).offset);
  EXPECT_FALSE(pool_.allocate(100, 0).offset);  // `kept` is there
}

TEST_F(PlannedPoolTest, PlansNothingThatOutlivesItsIteration) {
  pool_.begin_iteration();
  pool_.allocate(5000, 0);
  run({100});
  pool_.begin_iteration();
  EXPECT_EQ(pool_.bytes(), 100U);
  EXPECT_EQ(pool_.allocate(5000, 0).offset, std::nullopt);
  EXPECT_EQ(served(run({100})), 1U);
  EXPECT_EQ(pool_.statistics().unplanned, 1U);
  EXPECT_EQ(pool_.statistics().misses, 0U);
}

TEST_F(PlannedPoolTest, GivesUpAPlanThatIsMissedAndPlansAnew) {
  pool_.begin_iteration();
  run_nested({1000, 2000});
  pool_.begin_iteration();
  const PlannedPool::Block kept = pool_.allocate(1000, 0);
  ASSERT_TRUE(kept.offset);
  const std::vector<Bytes> other(20, 300);
  EXPECT_EQ(served(run(other)), 0U);
  EXPECT_FALSE(pool_.is_planned());
  EXPECT_EQ(pool_.statistics().misses, 9U);  // the rest was not compared
  EXPECT_EQ(pool_.bytes(), *kept.offset + 1000);
  pool_.free(kept.ticket);
  EXPECT_EQ(pool_.bytes(), 0U);
  pool_.begin_iteration();
  EXPECT_TRUE(pool_.is_planned());
  EXPECT_EQ(pool_.statistics().plans, 2U);
  EXPECT_EQ(served(run_nested({1000})) + served(run(other)), 21U);
}

TEST_F(PlannedPoolTest, KeepsPlansForProgramsThatGoBackAndForth) {
  const std::vector<Bytes> small(20, 300), large(20, 500);
  for (const auto* sizes : {&small, &large}) {
    pool_.begin_iteration();
    run(*sizes);
  }
  for (const auto* sizes : {&small, &large, &large, &small}) {
    pool_.begin_iteration();
    EXPECT_EQ(served(run(*sizes)), 20U);
  }
  EXPECT_EQ(pool_.statistics().plans, 2U);
  EXPECT_EQ(pool_.bytes(), 500U);
}

TEST_F(PlannedPoolTest, KeepsBlocksApartFromThoseOfAnotherPlan) {
  std::vector<Bytes> small{100}, large{100};
  small.resize(20, 300);
  large.resize(20, 500);
  for (const auto* sizes : {&large, &small}) {
    pool_.begin_iteration();
    run(*sizes);
  }
  pool_.begin_iteration();
  const PlannedPool::Block kept = pool_.allocate(100, 0);
  EXPECT_EQ(kept.offset, Bytes{0});
  EXPECT_EQ(pool_.allocate(500, 0).offset, std::nullopt);  // of the other plan, but `kept` is there
  pool_.free(kept.ticket);
  EXPECT_EQ(pool_.allocate(500, 0).offset, Bytes{0});
}

TEST_F(PlannedPoolTest, WaitsLongerWhereNoPlanEverFits) {
  for (Bytes i = 0; i < 200; ++i) {
    pool_.begin_iteration();
    run(std::vector<Bytes>(20, 300 + i));
  }
  EXPECT_LE(pool_.statistics().plans, 12U);
  for (int i = 0; i < 70; ++i) {
    pool_.begin_iteration();
    run(std::vector<Bytes>(20, 300));
  }
  pool_.begin_iteration();
  EXPECT_EQ(served(run(std::vector<Bytes>(20, 300))), 20U);
}

TEST_F(PlannedPoolTest, PlansNothingThatWasCancelled) {
  pool_.begin_iteration();
  pool_.cancel(pool_.allocate(5000, 0).ticket);
  run({100});
  pool_.begin_iteration();
  EXPECT_EQ(pool_.bytes(), 100U);
}

TEST_F(PlannedPoolTest, ForgetsAPlanThatIsNotWanted) {
  pool_.begin_iteration();
  run_nested({100, 200});
  pool_.begin_iteration();
  run_nested({300, 400});
  EXPECT_EQ(pool_.plan_bytes(), 512U + 100);
  pool_.begin_iteration();
  EXPECT_EQ(served(run_nested({100, 200})), 2U);
  pool_.begin_iteration();
  EXPECT_EQ(pool_.plan_bytes(), 512U + 100);
  pool_.reject_plan();
  EXPECT_EQ(pool_.plan_bytes(), 0U);
  EXPECT_EQ(pool_.bytes(), 0U);
  EXPECT_EQ(served(run_nested({100, 200})), 0U);
  pool_.begin_iteration();  // and it may be made again
  EXPECT_EQ(served(run_nested({100, 200})), 2U);
}

TEST_F(PlannedPoolTest, DropsItsPlansWhereTheyCannotBeBacked) {
  pool_.begin_iteration();
  run_nested({100, 200});
  pool_.begin_iteration();
  const PlannedPool::Block kept = pool_.allocate(100, 0);
  pool_.drop_plans();
  EXPECT_EQ(pool_.bytes(), *kept.offset + 100);
  EXPECT_FALSE(pool_.allocate(200, 0).offset);
  pool_.free(kept.ticket);
  EXPECT_EQ(pool_.bytes(), 0U);
}

TEST_F(PlannedPoolTest, FindsThePeriodItself) {
  const std::vector<Bytes> usual{100, 200, 300, 400, 500};
  run({7, 8, 9});
  for (int i = 0; i < 8; ++i) run_nested(usual);
  EXPECT_TRUE(pool_.is_planned());
  EXPECT_EQ(served(run_nested(usual)), 5U);
  for (int i = 0; i < 10; ++i) run_nested(usual);
  EXPECT_EQ(pool_.statistics().misses, 0U);  // it knew where in the period it was
  EXPECT_EQ(pool_.statistics().plans, 1U);
}

// In its midst, blocks of the plan's requests would lie beside the plan.
TEST_F(PlannedPoolTest, BeginsAPlanWithThePeriod) {
  for (std::size_t requests = 2; requests < 12; ++requests) {
    pool_ = PlannedPool();
    std::vector<Bytes> sizes;
    for (std::size_t i = 1; i <= requests; ++i) sizes.push_back(100 * i);
    std::size_t whole = 0;
    for (int i = 0; i < 20; ++i) {
      const std::size_t count = served(run_nested(sizes));
      ASSERT_TRUE(count == 0 || count == requests) << count << " of " << requests;
      whole += count == requests ? 1 : 0;
    }
    EXPECT_GE(whole, 12U);
    EXPECT_EQ(pool_.statistics().plans, 1U);
    EXPECT_EQ(pool_.statistics().misses, 0U);
  }
}

TEST_F(PlannedPoolTest, FindsAnotherPeriodWhereTheOldOneEnds) {
  const std::vector<Bytes> old(5, 100), other{200, 300, 200};
  for (int i = 0; i < 20; ++i) run_nested(old);
  EXPECT_EQ(served(run_nested(old)), 5U);
  for (int i = 0; i < 40; ++i) run_nested(other);
  EXPECT_EQ(served(run_nested(other)), 3U);
  EXPECT_EQ(pool_.bytes(), 2U * 512 + 200);
}

TEST_F(PlannedPoolTest, TakesInnerLoopsForWhatTheyAre) {
  const std::vector<Bytes> inner{100}, outer{200, 300, 400, 500, 600, 700, 800, 900};
  const auto iteration = [&] {
    std::size_t hits = 0;
    for (int i = 0; i < 20; ++i) hits += served(run(inner));
    for (int i = 0; i < 3; ++i) hits += served(run_nested(outer));
    return hits;
  };
  for (int i = 0; i < 30; ++i) iteration();
  EXPECT_EQ(iteration(), 44U);
}

TEST(PlannedPool, ForgetsRecordsThatGrowTooLong) {
  PlannedPool pool({.most_recorded = 10});
  for (int i = 0; i < 3; ++i) {
    pool.begin_iteration();
    for (int k = 0; k < 20; ++k) pool.free(pool.allocate(100, 0).ticket);
  }
  EXPECT_FALSE(pool.is_planned());
  pool.begin_iteration();
  for (int k = 0; k < 4; ++k) pool.free(pool.allocate(100, 0).ticket);
  pool.begin_iteration();
  EXPECT_TRUE(pool.is_planned());
}

}  // namespace
}  // namespace stowage
