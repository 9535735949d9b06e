#include <gtest/gtest.h>

#include "stowage/planner.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

// A slow link and much memory for values: what crosses is rebuilt too.
TEST(JoinedUnits, APlanOfThemIsValidAndFaster) {
  const Graph graph = testing::chain_graph(
      {.units = 40, .activation_elements = 1 << 18, .parameter_elements = 64, .op_flops = 1e8});
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
