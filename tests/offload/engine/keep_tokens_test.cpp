// A BERT whose MLPs work on half of the tokens: the bits of the Evaluator at the need, in a fifth of it and
// at the minimum.
#include <gtest/gtest.h>

#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::uint64_t steps = 3;
constexpr std::int32_t vocabulary = 16;

Graph keeping_bert(DataType type, std::int64_t micro_batches, double dropout) {
  GraphBuilder builder(type);
  const BuiltModel model = bert(builder, {.layers = 2,
                                          .width = 32,
                                          .heads = 4,
                                          .vocabulary = vocabulary,
                                          .sequence = 16,
                                          .batch = 4,
                                          .micro_batches = micro_batches,
                                          .dropout = dropout,
                                          .head_tokens = 12,
                                          .keep_tokens = 0.5});
  return builder.finish(model.loss, {});
}

TrainingRun run_in(const Graph& graph, const Plan& plan) {
  const auto device =
      open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
  EngineOptions options;
  options.seed = run_seed;
  Engine engine(*device, graph, plan, options);
  return run_engine(engine, graph, steps, vocabulary);
}

void expect_bits_in_all_budgets(const Graph& graph) {
  const TrainingRun expected = run_evaluator(graph, cpu_launch_table(), steps, vocabulary);
  const Machine machine;
  Planner planner = quick_planner(graph, machine);
  const Bytes need = planner.need_bytes(), least = planner.minimum_bytes();
  EXPECT_LT(least, need / 5);
  for (const Bytes budget : {need, need / 5, least}) {
    SCOPED_TRACE(::testing::Message() << budget << " of " << need);
    const auto planned = planner.answer({.device = budget}).outcome;
    ASSERT_TRUE(std::holds_alternative<Plan>(planned));
    EXPECT_TRUE(run_in(graph, std::get<Plan>(planned)) == expected);
  }
}

TEST(KeepTokensEngine, LeavesTheBitsOfTheEvaluator) {
  expect_bits_in_all_budgets(keeping_bert(DataType::f32, 1, 0));
  expect_bits_in_all_budgets(keeping_bert(DataType::bf16, 2, 0.1));
}

}  // namespace
}  // namespace stowage
