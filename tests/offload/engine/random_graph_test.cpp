// Random graphs, planned at several budgets and executed: always the bits of the Evaluator.
#include <gtest/gtest.h>

#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/draws.h"
#include "tests/support/mix_kernel.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::uint64_t steps = 3;
constexpr std::int32_t input_range = 1000;

class RandomGraphEngine : public ::testing::TestWithParam<int> {
 protected:
  std::uint64_t seed() const { return static_cast<std::uint64_t>(GetParam()); }
  // Every other graph has parameters that are not trained and ops that nothing computes again.
  Graph graph_of(RandomGraphOptions options) const {
    if (seed() % 2 == 1) options.frozen_percent = 40, options.fixed_percent = 20;
    return random_graph(seed(), options);
  }

  TrainingRun run(const Graph& graph, const Plan& plan, Bytes capacity) const {
    const auto device = open_simulated_device({.capacity = capacity, .executor = Executor::virtual_time});
    EngineOptions options;
    options.seed = run_seed;
    options.machine = random_machine(seed());
    options.kernels = kernels();
    Engine engine(*device, graph, plan, options);
    TrainingRun result = run_engine(engine, graph, steps, input_range);
    EXPECT_EQ(device->counters().highest_device_byte, plan.device_peak_bytes);
    return result;
  }

  static LaunchTable kernels() {
    LaunchTable table = cpu_launch_table();
    table.add("mix", mix_kernel);
    return table;
  }
};

TEST_P(RandomGraphEngine, LeavesTheBitsOfTheEvaluatorAtEveryBudget) {
  const Graph graph = graph_of({.max_elements = 1 << 12});
  const Machine machine = random_machine(seed());
  const TrainingRun expected = run_evaluator(graph, kernels(), steps, input_range);
  Planner planner = quick_planner(graph, machine);
  const Bytes minimum = planner.minimum_bytes(), need = planner.need_bytes();
  for (Bytes budget :
       {minimum, random_budget(seed(), minimum, need), random_budget(~seed(), minimum, need), need}) {
    SCOPED_TRACE(budget);
    const auto planned = planner.answer({.device = budget}).outcome;
    ASSERT_TRUE(std::holds_alternative<Plan>(planned));
    EXPECT_TRUE(run(graph, std::get<Plan>(planned), budget) == expected);
  }
  for (Policy policy : every_policy) {
    SCOPED_TRACE(to_string(policy));
    const auto planned = quick_plan(graph, machine, {}, {.policy = policy});
    const Plan& plan = std::get<Plan>(planned);
    EXPECT_TRUE(run(graph, plan, plan.device_peak_bytes) == expected);
  }
}

TEST_P(RandomGraphEngine, LeavesTheBitsOfTheEvaluatorInBothOrdersOfMicroBatches) {
  const auto micro_batches = 2 + static_cast<std::uint32_t>(seed() % 3);
  const std::uint32_t most_groups = micro_batches & ~(micro_batches - 1);  // a power of two that divides it
  const Graph graph = graph_of({.max_elements = 1 << 10,
                                .micro_batches = micro_batches,
                                .gradient_groups = seed() % 2 == 0 ? most_groups : 1});
  const Machine machine = random_machine(seed());
  const TrainingRun expected = run_evaluator(graph, kernels(), steps, input_range);
  for (MicroBatchOrder order : {MicroBatchOrder::layer_major, MicroBatchOrder::ahead(1)}) {
    const PlanOptions options{.order = order};
    Planner planner = quick_planner(graph, machine, options);
    const Bytes minimum = planner.minimum_bytes(), need = planner.need_bytes();
    for (Bytes budget : {minimum, random_budget(seed(), minimum, need)}) {
      SCOPED_TRACE(budget);
      const auto planned = planner.answer({.device = budget}).outcome;
      ASSERT_TRUE(std::holds_alternative<Plan>(planned));
      EXPECT_EQ(std::get<Plan>(planned).order, order);
      EXPECT_TRUE(run(graph, std::get<Plan>(planned), budget) == expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphEngine, ::testing::Range(0, draws(40, 2)));

}  // namespace
}  // namespace stowage
