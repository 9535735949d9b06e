#include "offload/plan/validate/order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/planner.h"
#include "tests/offload/plan/validate/made_plans.h"
#include "tests/offload/plan/validate/small_plans.h"

namespace stowage {
namespace {

using validation::Order;
using validation::Report;

class OrderTest : public ::testing::Test {
 protected:
  Order order_of(const Plan& plan) {
    Report report(graph_, plan);
    Order order(plan, report);
    findings_ = testing::joined(report.take());
    return order;
  }

  Graph graph_ = testing::small_graph();
  Plan plan_ = testing::small_streamed_plan();
  std::string findings_;
};

TEST_F(OrderTest, FollowsLanesWaitsAndTheGate) {
  const Order order = order_of(plan_);
  ASSERT_TRUE(order.sound());
  EXPECT_TRUE(order.before(order.node(0, 2), order.node(0, 3)));   // compute lane
  EXPECT_TRUE(order.before(order.node(0, 0), order.node(0, 2)));   // a wait
  EXPECT_TRUE(order.before(order.node(0, 0), order.node(0, 18)));  // through many
  EXPECT_TRUE(order.before(order.node(0, 18), order.node(1, 1)));  // a wait on the step before
  EXPECT_TRUE(order.before(order.node(0, 17), order.node(1, 0)));  // the gate before the next step
  EXPECT_TRUE(order.before(order.node(0, 14), order.node(2, 0)));
  EXPECT_TRUE(order.before(order.beginning(1), order.node(1, 0)));
  EXPECT_TRUE(order.before(order.node(0, 17), order.beginning(1)));
}

TEST_F(OrderTest, LeavesTheRestOpen) {
  const Order order = order_of(plan_);
  EXPECT_FALSE(order.before(order.node(0, 2), order.node(0, 2)));
  EXPECT_FALSE(order.before(order.node(0, 3), order.node(0, 2)));
  EXPECT_FALSE(order.before(order.node(0, 1), order.node(0, 2)));   // other lane, no wait
  EXPECT_FALSE(order.before(order.node(0, 18), order.node(1, 0)));  // the update overlaps the next step
  EXPECT_FALSE(order.before(order.node(0, 18), order.beginning(1)));
  EXPECT_FALSE(order.before(order.node(1, 0), order.node(0, 18)));
}

TEST_F(OrderTest, TheGateHoldsWhatStandsBehindIt) {
  testing::insert_copy(plan_, 0, 19);  // one more prefetch, behind the gate
  const Order order = order_of(plan_);
  EXPECT_TRUE(order.before(order.node(0, 17), order.node(0, 19)));
  EXPECT_FALSE(order.before(order.node(0, 18), order.node(0, 19)));
}

TEST_F(OrderTest, WithoutAGateStepsRunAhead) {
  plan_.gate = no_id;
  const Order order = order_of(plan_);
  EXPECT_FALSE(order.before(order.node(0, 17), order.node(1, 0)));
}

TEST_F(OrderTest, SaysDeadlockForEveryCycleThatOneWaitCloses) {
  // Closing the path from `first` to any later `second` with a wait back makes a cycle; without such
  // a path the wait is only enqueued too early.
  const Order good = order_of(plan_);
  int cycles = 0, early = 0;
  for (InstructionId first = 0; first < plan_.instructions.size(); ++first) {
    for (InstructionId second = first; second < plan_.instructions.size(); ++second) {
      Plan plan = plan_;
      plan.instructions[first].waits.push_back({second, 0});
      const bool cycle = first == second || good.before(good.node(0, first), good.node(0, second));
      EXPECT_FALSE(order_of(plan).sound());
      EXPECT_EQ(findings_.find("deadlock") != std::string::npos, cycle) << first << " waits for " << second;
      EXPECT_NE(findings_, "");
      (cycle ? cycles : early) += 1;
    }
  }
  EXPECT_GT(cycles, 100);
  EXPECT_GT(early, 5);
}

}  // namespace
}  // namespace stowage
