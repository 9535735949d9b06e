#include "offload/plan/family.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

constexpr std::uint64_t graphs = testing::draws<std::uint64_t>(25, 4);

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

}  // namespace
}  // namespace stowage
