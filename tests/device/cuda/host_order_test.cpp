#include "src/device/cuda/host_order.h"

#include <gtest/gtest.h>

namespace stowage::cuda {
namespace {

class HostOrderTest : public testing::Test {
 protected:
  HostOrderTest() {
    for (LaneId lane = 0; lane < 3; ++lane) order.add_lane(lane);
    for (EventId event = 0; event < 2; ++event) order.add_event(event);
  }
  HostOrder::Clock enqueue(LaneId lane) {
    HostOrder::Clock clock;
    order.enqueue(lane, clock);
    return clock;
  }
  void fail(LaneId lane) { order.fail(lane, enqueue(lane), {"no luck", "unlucky"}); }

  HostOrder order;
};

TEST_F(HostOrderTest, SkipsWhatFollowsOnTheLaneAndNothingBefore) {
  const auto before = enqueue(0), failing = enqueue(0), behind = enqueue(0);
  order.fail(0, failing, {"no luck", "unlucky"});
  EXPECT_TRUE(order.may_run(0, before));
  EXPECT_FALSE(order.may_run(0, behind));
  EXPECT_TRUE(order.may_run(1, enqueue(1)));
}

TEST_F(HostOrderTest, ReportsOnceAndGoesOn) {
  fail(0);
  const auto failure = order.take(0);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->message, "no luck");
  EXPECT_EQ(failure->work, "unlucky");
  EXPECT_EQ(order.take(0), nullptr);
  EXPECT_TRUE(order.may_run(0, enqueue(0)));
}

TEST_F(HostOrderTest, CarriesAFailureAlongAnEvent) {
  fail(0);
  order.record(0, 0);
  EXPECT_NE(order.carried_by_event(0), nullptr);
  EXPECT_TRUE(order.may_run(1, enqueue(1)));
  order.wait(1, 0);
  EXPECT_FALSE(order.may_run(1, enqueue(1)));
  order.record(1, 1);
  EXPECT_NE(order.carried_by_event(1), nullptr);
  EXPECT_NE(order.take(1), nullptr);
}

TEST_F(HostOrderTest, AnEventRecordedBeforeTheFailureCarriesNothing) {
  enqueue(0);
  order.record(0, 0);
  fail(0);
  EXPECT_EQ(order.carried_by_event(0), nullptr);
  order.wait(1, 0);
  EXPECT_TRUE(order.may_run(1, enqueue(1)));
  EXPECT_EQ(order.take(1), nullptr);
}

// The order of a real run: all is enqueued before the first function runs.
TEST_F(HostOrderTest, AFailureThatHappensLaterTravelsToo) {
  const auto failing = enqueue(0);
  order.record(0, 0);
  order.wait(1, 0);
  const auto behind = enqueue(1);
  order.record(1, 1);
  order.fail(0, failing, {"no luck", "unlucky"});
  EXPECT_FALSE(order.may_run(1, behind));
  EXPECT_NE(order.carried_by_event(0), nullptr);
  EXPECT_NE(order.carried_by_event(1), nullptr);
}

TEST_F(HostOrderTest, EachLaneReportsForItself) {
  fail(0);
  order.record(0, 0);
  order.wait(1, 0);
  EXPECT_NE(order.take(0), nullptr);
  EXPECT_EQ(order.carried_by_event(0), nullptr);  // lane 0 recorded it
  EXPECT_FALSE(order.may_run(1, enqueue(1)));
  EXPECT_NE(order.take(1), nullptr);
  EXPECT_TRUE(order.may_run(1, enqueue(1)));
}

TEST_F(HostOrderTest, ALaneBehindAReportedFailureIsNotHeldUp) {
  fail(0);
  order.record(0, 0);
  order.wait(1, 0);  // keeps the failure alive
  EXPECT_NE(order.take(0), nullptr);
  order.wait(2, 0);
  EXPECT_TRUE(order.may_run(2, enqueue(2)));
  EXPECT_EQ(order.take(2), nullptr);
  EXPECT_NE(order.take(1), nullptr);
}

TEST_F(HostOrderTest, ALaneCanCatchTheSameFailureAgain) {
  fail(0);
  order.record(0, 0);
  order.wait(1, 0);
  EXPECT_NE(order.take(1), nullptr);
  order.wait(1, 0);  // lane 0 has still not reported
  EXPECT_FALSE(order.may_run(1, enqueue(1)));
  EXPECT_NE(order.take(1), nullptr);
}

TEST_F(HostOrderTest, ALaneWithAnOldOnesIdStartsAfresh) {
  fail(0);
  order.record(0, 0);
  order.wait(1, 0);
  order.remove_lane(0);
  order.add_lane(0);
  EXPECT_TRUE(order.may_run(0, enqueue(0)));
  EXPECT_EQ(order.take(0), nullptr);
  EXPECT_FALSE(order.may_run(1, enqueue(1)));
  EXPECT_NE(order.take(1), nullptr);
}

TEST_F(HostOrderTest, ReportsTheOldestOfSeveral) {
  const auto first = enqueue(0), second = enqueue(1);
  order.record(0, 0);
  order.wait(1, 0);
  order.fail(1, second, {"second", "b"});
  order.fail(0, first, {"first", "a"});
  EXPECT_EQ(order.take(1)->message, "second");
  EXPECT_EQ(order.take(1), nullptr);
  EXPECT_EQ(order.take(0)->message, "first");
}

}  // namespace
}  // namespace stowage::cuda
