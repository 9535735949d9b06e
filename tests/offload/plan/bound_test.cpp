#include "offload/plan/bound.h"

#include <gtest/gtest.h>

#include "stowage/planner.h"
#include "tests/support/chain_graph.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

// Forward: embed, 2 units of 2 ops, head. Backward: head, 2 units of 3 ops (one op more in the second).
struct Setting {
  Setting() : graph(testing::chain_graph({.units = 2, .parameter_elements = 1000, .op_flops = 1})) {
    machine.flops_per_second = 1;
    machine.device_bytes_per_second = 1e30;
    machine.launch_seconds = 0;
    machine.h2d = machine.d2h = {.bytes_per_second = 1e30, .latency_seconds = 0, .throttled = true};
    machine.host_bytes_per_second = 1e30;
  }
  Graph graph;  // state: 2 parameters * 3 tensors * 4000 bytes
  Machine machine;
};

TEST(Bound, WithAllTheMemoryItIsTheArithmetic) {
  Setting setting;
  StepBound bound = lower_bound(setting.graph, setting.machine, unlimited);
  EXPECT_DOUBLE_EQ(bound.seconds, 6 + 8);
  EXPECT_EQ(bound.bound_by, "compute");
}

TEST(Bound, StateThatCannotStayMustCrossAfterBackwardAndBeforeForwardEnds) {
  Setting setting;
  setting.machine.d2h.bytes_per_second = 100;  // 8000 B of gradients, half of them must leave
  StepBound bound = lower_bound(setting.graph, setting.machine, 12000);
  EXPECT_DOUBLE_EQ(bound.seconds, 40 + 6);
  EXPECT_EQ(bound.bound_by, "d2h");
  setting.machine.h2d.bytes_per_second = 10;
  bound = lower_bound(setting.graph, setting.machine, 12000);
  EXPECT_DOUBLE_EQ(bound.seconds, 40 + 400);
  EXPECT_EQ(bound.bound_by, "h2d");
}

TEST(Bound, HostMemoryBindsWhenTheOptimizerIsSlow) {
  Setting setting;
  setting.machine.host_bytes_per_second = 28000;  // each update moves 28000 bytes
  StepBound bound = lower_bound(setting.graph, setting.machine, 0);
  EXPECT_DOUBLE_EQ(bound.seconds, 6 + 8);  // 2 s of updates hide behind 6 s of forward
  setting.machine.host_bytes_per_second = 2800;
  bound = lower_bound(setting.graph, setting.machine, 0);
  EXPECT_DOUBLE_EQ(bound.seconds, 8 + 20);
  EXPECT_EQ(bound.bound_by, "host");
}

TEST(Bound, NoPlanIsFaster) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Graph graph = testing::random_graph(seed);
    Machine machine = testing::random_machine(seed);
    Bytes least = minimum_bytes(graph, machine);
    for (Bytes budget : {least, least * 2, unlimited}) {
      auto result = make_plan(graph, machine, {budget, unlimited});
      ASSERT_TRUE(std::holds_alternative<Plan>(result));
      const Plan& plan = std::get<Plan>(result);
      EXPECT_GE(plan.predicted_step_seconds * (1 + 1e-9), plan.lower_bound_seconds)
          << seed << " at " << budget;
    }
  }
}

}  // namespace
}  // namespace stowage
