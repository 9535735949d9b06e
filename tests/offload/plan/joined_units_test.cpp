#include "offload/plan/joined_units.h"

#include <gtest/gtest.h>

#include "offload/plan/candidate.h"
#include "stowage/planner.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

using testing::chain_graph;
using testing::find_op;

TEST(JoinedUnits, ConsecutiveUnitsAreOneAndBackwardOpsAreWithTheirForwardOps) {
  const Graph graph = chain_graph({.units = 7});
  const Graph joined = with_joined_units(graph, 3);
  EXPECT_EQ(joined.unit_names.size(), (graph.unit_names.size() + 2) / 3);
  EXPECT_EQ(joined.op(find_op(joined, "a4")).unit, 1U);
  for (OpId op = 0; op < graph.ops.size(); ++op)
    if (graph.op(op).unit != no_id) {
      EXPECT_EQ(joined.op(op).unit, graph.op(op).unit / 3);
    }
  check(joined);
}

// Of x and h of each unit, which are as large, x crosses.
TEST(JoinedUnits, LessCrossesThem) {
  const Graph graph = chain_graph({.units = 30});
  const Graph joined = with_joined_units(graph, 5);
  const Machine machine;
  const double alone = crossing_share(make_problem(graph, machine, {}).items);
  const double together = crossing_share(make_problem(joined, machine, {}).items);
  EXPECT_NEAR(alone, 0.5, 0.05);
  EXPECT_LT(together, alone / 3);
}

// A slow link and much memory for values: what crosses is rebuilt too.
TEST(JoinedUnits, APlanOfThemIsValidAndFaster) {
  const Graph graph =
      chain_graph({.units = 40, .activation_elements = 1 << 18, .parameter_elements = 64, .op_flops = 1e8});
  Machine machine;
  machine.h2d = machine.d2h = {.bytes_per_second = 2e8, .latency_seconds = 1e-6, .throttled = true};
  PlanOptions alone;
  alone.settings.joined_units.clear();
  const Budget budget{.device = 20'000'000};
  const auto plan_with = [&](const PlanOptions& options) {
    const Plan plan = std::get<Plan>(make_plan(graph, machine, budget, options));
    EXPECT_TRUE(validate(graph, plan, budget).empty());
    return plan.predicted_step_seconds;
  };
  EXPECT_LT(plan_with({}), 0.9 * plan_with(alone));
}

}  // namespace
}  // namespace stowage
