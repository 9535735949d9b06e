// How many kernels a step launches for norms and updates, over the fakes, and that steps keep their bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "stowage/cuda_device.h"
#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"
#include "tests/support/sliced_plans.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::uint64_t steps = 2;
constexpr std::int32_t vocabulary = 48;

// Of ops by name of the kernel.
struct Count {
  std::size_t ops = 0, calls = 0, launches = 0;
};
std::map<std::string, Count> counts;

template <class Call>
void count(const Op& op, std::size_t ops, const Call& call) {
  const unsigned before = fake_cuda_calls("cudaLaunchKernel");
  call();
  Count& of = counts[op.kernel];
  of.ops += ops;
  of.calls += 1;
  of.launches += fake_cuda_calls("cudaLaunchKernel") - before;
}
void count_one(const LaunchArguments& arguments) {
  count(*arguments.op, 1, [&] { cuda_launch_table().find (*arguments.op)(arguments); });
}
void count_joint(std::span<const LaunchArguments> updates) {
  const Op& op = *updates.front().op;
  count(op, updates.size(), [&] { cuda_launch_table().find_joint(op.kernel)(updates); });
}

// The card's kernels, of which those of norms and updates are counted.
LaunchTable counting_table(bool joint) {
  LaunchTable table = cuda_launch_table();
  for (const char* kernel : {"square_sum", "square_sums", "adamw"}) table.add(kernel, count_one);
  if (joint) table.add_joint("adamw", count_joint);
  return table;
}

Graph gpt_of(std::int64_t layers, DataType type, Moments moments = Moments::f32) {
  GraphBuilder builder(type);
  const BuiltModel model =
      gpt(builder,
          {.layers = layers, .width = 16, .heads = 2, .vocabulary = vocabulary, .sequence = 8, .batch = 2});
  AdamW optimizer;
  optimizer.moments = moments;
  return builder.finish(model.loss, optimizer);
}

Plan plan_on_device(const Graph& graph) {
  return std::get<Plan>(quick_plan(graph, {}, {}, {.policy = Policy::none}));
}

std::size_t commits_where(const Plan& plan, bool (*where)(const Instruction&)) {
  return static_cast<std::size_t>(std::count_if(
      plan.instructions.begin(), plan.instructions.end(),
      [&](const Instruction& each) { return each.kind == InstructionKind::commit && where(each); }));
}

// Returns a plan that makes at least a quarter of the updates on the host and at least a quarter on the
// device.
Plan plan_on_both(const Graph& graph) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Machine machine = random_machine(seed);
    Planner planner = quick_planner(graph, machine);
    const Bytes budget = (planner.minimum_bytes() + planner.need_bytes()) / 2;
    Plan plan = std::get<Plan>(planner.answer({.device = budget}).outcome);
    const std::size_t here = commits_where(plan, runs_on_device), there = commits_where(plan, runs_on_host);
    if (here < 3 * there && there < 3 * here) return plan;
  }
  ADD_FAILURE() << "no plan has a quarter of the updates on each side";
  return {};
}

TrainingRun train(const Graph& graph, const Plan& plan, bool joint) {
  counts.clear();
  const auto device = open_cuda_device();
  EngineOptions options;
  options.seed = run_seed;
  options.kernels = counting_table(joint);
  Engine engine(*device, graph, plan, options);
  return run_engine(engine, graph, steps, vocabulary);
}

TEST(Launches, OfAStepOnTheDevice) {
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    const Graph graph = gpt_of(12, type);
    const Plan plan = plan_on_device(graph);
    train(graph, plan, true);
    std::set<std::uint32_t> half_blocks;
    for (const Op& op : graph.ops)
      if (op.phase == Phase::backward) half_blocks.insert(graph.half_block_of(op.unit));
    const std::size_t sums = counts["square_sum"].launches + counts["square_sums"].launches;
    EXPECT_LE(sums, steps * 3 * half_blocks.size()) << to_string(type);
    EXPECT_EQ(counts["square_sums"].launches, steps * (24 + 1))
        << to_string(type);  // and the last gain, bias
    const std::size_t updates = commits_where(plan, runs_on_device);
    EXPECT_EQ(updates, 148U);
    EXPECT_EQ(counts["adamw"].ops, steps * updates) << to_string(type);
    EXPECT_EQ(counts["adamw"].launches, steps * ((updates + 63) / 64)) << to_string(type);
  }
}

// A launch each for moments of matrices and of vectors.
TEST(Launches, OfMomentsInFewerBytes) {
  for (const Moments moments : {Moments::bf16, Moments::eight_bit}) {
    const Graph graph = gpt_of(12, DataType::bf16, moments);
    const Plan plan = plan_on_device(graph);
    train(graph, plan, true);
    EXPECT_EQ(counts["adamw"].ops, steps * commits_where(plan, runs_on_device));
    EXPECT_EQ(counts["adamw"].launches, steps * 2 * ((commits_where(plan, runs_on_device) + 63) / 64));
  }
}

TEST(Launches, OfEverySliceASum) {
  const Graph graph = sliced_gpt();
  train(graph, plan_on_device(graph), true);
  const auto sums_of_table = std::count_if(graph.ops.begin(), graph.ops.end(), [](const Op& op) {
    return op.kernel == "square_sum" && op.name.starts_with("wte.weight");
  });
  EXPECT_EQ(sums_of_table, slices_of_table);
  const auto sums = std::count_if(graph.ops.begin(), graph.ops.end(),
                                  [](const Op& op) { return op.kernel == "square_sum"; });
  EXPECT_EQ(counts["square_sum"].launches, steps * static_cast<std::size_t>(sums));
}

// Those of a run of commits that wait for nothing else.
TEST(Launches, OfUpdatesOnBothSides) {
  const Graph graph = gpt_of(12, DataType::bf16);
  const Plan plan = plan_on_both(graph);
  train(graph, plan, true);
  std::size_t launches = 0, in_run = 0;
  std::vector<bool> awaited(plan.instructions.size());
  for (const Instruction& each : plan.instructions)
    for (const Wait& wait : each.waits)
      if (wait.steps_back == 0) awaited[wait.instruction] = true;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& each = plan.instructions[id];
    if (each.lane != LaneRole::compute) continue;
    const bool is_update = each.kind == InstructionKind::commit;
    if (!is_update || !each.waits.empty() || in_run == 64) in_run = 0;
    if (is_update && ++in_run == 1) ++launches;
    if (awaited[id]) in_run = 0;
  }
  EXPECT_LE(counts["adamw"].launches, steps * launches);
  EXPECT_LT(2 * counts["adamw"].launches, counts["adamw"].ops);
}

TEST(Launches, LeaveTheBitsOfALaunchEach) {
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    for (const Moments moments : {Moments::f32, Moments::bf16, Moments::eight_bit}) {
      const Graph graph = gpt_of(2, type, moments);
      const Plan plan = plan_on_device(graph);
      const TrainingRun apart = train(graph, plan, false);
      const std::size_t launches = counts["adamw"].launches;
      EXPECT_TRUE(train(graph, plan, true) == apart) << to_string(type);
      EXPECT_LT(counts["adamw"].launches, launches);
    }
  }
}

}  // namespace
}  // namespace stowage
