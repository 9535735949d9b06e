#include "offload/plan/family.h"

#include <gtest/gtest.h>

#include <random>

#include "offload/plan/residency.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t graphs = 4;
#else
constexpr std::uint64_t graphs = 25;
#endif

std::vector<Bytes> ladder(Bytes least, Bytes need) {
  std::vector<Bytes> budgets;
  for (Bytes part = 0; part <= 10; ++part)
    budgets.push_back(least + (std::max(need, least) - least) * part * part / 100);
  return budgets;
}

// Asked from the largest budget to the smallest, so that what is known from others is of no help.
TEST(Family, WhatOtherBudgetsAskedForChangesNoAnswer) {
  for (std::uint64_t seed = 0; seed < graphs; seed += 5) {
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::random_machine(seed);
    Planner planner(graph, machine);
    std::vector<Bytes> budgets = ladder(planner.minimum_bytes(), planner.need_bytes());
    budgets.insert(budgets.begin(), budgets.front() / 2);  // infeasible
    for (auto budget = budgets.rbegin(); budget != budgets.rend(); ++budget) {
      const auto together = planner.plan({*budget, unlimited});
      const auto alone = make_plan(graph, machine, {*budget, unlimited});
      ASSERT_EQ(together.index(), alone.index()) << seed << " at " << *budget;
      if (together.index() == 0) {
        EXPECT_EQ(std::get<Plan>(together), std::get<Plan>(alone)) << seed << " at " << *budget;
      }
    }
  }
}

TEST(Family, MoreMemoryNeverMakesASlowerPlan) {
  for (std::uint64_t seed = 100; seed < 100 + graphs; ++seed) {
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::random_machine(seed);
    Planner planner(graph, machine);
    double before = std::numeric_limits<double>::infinity();
    std::vector<Bytes> budgets = ladder(planner.minimum_bytes(), planner.need_bytes());
    budgets.push_back(unlimited);
    for (Bytes budget : budgets) {
      const auto planned = planner.plan({budget, unlimited});
      ASSERT_TRUE(std::holds_alternative<Plan>(planned)) << seed << " at " << budget;
      const Plan& plan = std::get<Plan>(planned);
      EXPECT_LE(plan.predicted_step_seconds, before) << seed << " at " << budget;
      EXPECT_TRUE(validate(graph, plan, {budget, unlimited}).empty()) << seed << " at " << budget;
      EXPECT_LE(plan.lower_bound_seconds, plan.predicted_step_seconds * (1 + 1e-9))
          << seed << " at " << budget;
      before = plan.predicted_step_seconds;
    }
  }
}

TEST(Selection, KeepsTheFastestThatFitsAndTheFewestHostBytes) {
  auto plan = [](Bytes device, Bytes host, double seconds) {
    Plan made;
    made.device_peak_bytes = device;
    made.host_bytes = host;
    made.predicted_step_seconds = seconds;
    return made;
  };
  Selection selection({.device = 10, .host = 20});
  selection.offer(plan(11, 1, 1));
  selection.offer(plan(10, 21, 1));
  EXPECT_FALSE(selection.best());
  EXPECT_EQ(selection.least_host(), 21U);
  EXPECT_FALSE(selection.beaten(100));
  selection.offer(plan(9, 20, 3));
  selection.offer(plan(10, 20, 2));
  selection.offer(plan(8, 19, 2));
  ASSERT_TRUE(selection.best());
  EXPECT_EQ(selection.best()->device_peak_bytes, 10U);
  EXPECT_EQ(selection.least_host(), 19U);
  EXPECT_TRUE(selection.beaten(2));
  EXPECT_FALSE(selection.beaten(1.9));
}

// Of `seconds`, with an arena of `percent` of its live bytes.
Plan offered(double seconds, Bytes percent) {
  Plan plan;
  plan.predicted_step_seconds = seconds;
  plan.live_peak_bytes = 1000;
  plan.device_peak_bytes = 10 * percent;
  return plan;
}

TEST(Selection, IsSettledWhereNoPlanThatTakesSoLongWouldBeKept) {
  for (const Bytes percent : {100U, 120U}) {
    Selection selection({unlimited, unlimited});
    EXPECT_FALSE(selection.settled(1e9));
    selection.offer(offered(2, percent));
    for (const double seconds : {1.0, 1.999, 2.0, 2.001, 3.0})
      for (const Bytes of_other : {100U, 120U}) {
        Selection other = selection;
        other.offer(offered(seconds, of_other));
        const bool kept = other.best() != selection.best();
        EXPECT_FALSE(kept && selection.settled(seconds)) << percent << " " << seconds;
      }
    EXPECT_EQ(selection.settled(2), percent == 100) << "one that is tight may take its place";
    EXPECT_TRUE(selection.settled(2.001));
  }
}

// What a selection keeps of these plans, offered one after another.
Plan kept(const std::vector<Plan>& plans, bool large_graph, Bytes budget = unlimited) {
  Selection selection({budget, unlimited}, large_graph);
  for (const Plan& plan : plans) selection.offer(plan);
  return *selection.best();
}

TEST(Selection, OfALargeGraphATightPlanGoesBeforeOneThatIsHardlyFaster) {
  const Plan tight = offered(1.001, 100), loose = offered(1, 120);
  for (const bool tight_first : {false, true}) {
    const std::vector<Plan> plans = tight_first ? std::vector{tight, loose} : std::vector{loose, tight};
    EXPECT_EQ(kept(plans, true), tight);
    EXPECT_EQ(kept(plans, false), loose);
  }
  const Plan fast = offered(0.998, 120);
  EXPECT_EQ(kept({tight, fast}, true), fast);
  EXPECT_EQ(kept({fast, tight}, true), fast);
}

TEST(Selection, KeepsTheFastestAfterAllWhereItIsTold) {
  Selection selection({unlimited, unlimited}, true);
  for (const double seconds : {2.0, 1.0005, 1.001}) selection.offer(offered(seconds, 120));
  EXPECT_FALSE(selection.passed_over());
  selection.offer(offered(1.001, 100));
  EXPECT_EQ(*selection.best(), offered(1.001, 100));
  EXPECT_TRUE(selection.passed_over());
  selection.keep_fastest();
  EXPECT_EQ(*selection.best(), offered(1.0005, 120));
  EXPECT_FALSE(selection.passed_over());
  selection.keep_fastest();
  EXPECT_EQ(*selection.best(), offered(1.0005, 120));
}

TEST(Selection, LacksHostWhereAPlanThatFitsTheDeviceNeedsNoMore) {
  Selection selection({.device = 10, .host = 20});
  EXPECT_FALSE(selection.lacks_host(25)) << "none is known";
  Plan plan;
  plan.device_peak_bytes = 11;
  plan.host_bytes = 25;
  selection.offer(plan);
  EXPECT_FALSE(selection.lacks_host(25)) << "none that fits the device";
  plan.device_peak_bytes = 10;
  selection.offer(plan);
  EXPECT_TRUE(selection.lacks_host(25));
  EXPECT_FALSE(selection.lacks_host(24));
  EXPECT_FALSE(selection.lacks_host(20));
}

// Live bytes and arena, and time.
Plan random_plan(std::mt19937& random) {
  Plan plan;
  plan.predicted_step_seconds = 1 + 1e-4 * static_cast<double>(random() % 60);
  plan.live_peak_bytes = 1000 * (5 + random() % 10);
  plan.device_peak_bytes = plan.live_peak_bytes * (random() % 2 == 0 ? 100 : 105 + random() % 20) / 100;
  return plan;
}

TEST(Selection, OfMorePlansThatFitItKeepsNoneThatIsSlower) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::vector<Plan> plans{offered(2, 100)};
    for (int i = 0; i < 8; ++i) plans.push_back(random_plan(random));
    double before = 3;
    for (Bytes budget = 1000; budget < 20'000; budget += 500) {
      const double seconds = kept(plans, true, budget).predicted_step_seconds;
      ASSERT_LE(seconds, before) << "round " << round << " at " << budget;
      before = seconds;
    }
  }
}

}  // namespace
}  // namespace stowage
