#include "offload/engine/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/device/simulated/executors.h"
#include "tests/offload/engine/fault_sweep.h"
#include "tests/offload/engine/immediate_device.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/printed_name.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::HasSubstr;

constexpr std::int32_t vocabulary = 64;
constexpr std::uint64_t steps = 4;

Graph gpt_graph() {
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, {.layers = 2,
                                         .width = 32,
                                         .heads = 2,
                                         .vocabulary = vocabulary,
                                         .sequence = 16,
                                         .batch = 2,
                                         .dropout = 0.1});
  return builder.finish(model.loss, AdamW{});
}

Graph bert_graph() {
  GraphBuilder builder;
  const BuiltModel model = bert(builder, {.layers = 2,
                                          .width = 32,
                                          .heads = 2,
                                          .vocabulary = vocabulary,
                                          .sequence = 16,
                                          .batch = 2,
                                          .dropout = 0.1});
  return builder.finish(model.loss, AdamW{});
}

std::uint64_t count_replays(const Plan& plan) {
  return static_cast<std::uint64_t>(std::count_if(
      plan.instructions.begin(), plan.instructions.end(),
      [](const Instruction& instruction) { return instruction.kind == InstructionKind::recompute; }));
}

// In the least memory, where what must go is moved if that takes less of it than a replay.
Plan least_plan(const Graph& graph) {
  const Machine machine;
  return std::get<Plan>(quick_plan(graph, machine, {.device = minimum_bytes(graph, machine)}));
}

// In the memory in which, over a link so slow that nothing moves that can be rebuilt, most is.
Plan rebuilding_plan(const Graph& graph) {
  constexpr Link slow{.bytes_per_second = 1e6, .latency_seconds = 1e-6};
  const Machine machine{.h2d = slow, .d2h = slow};
  const PlanOptions options{.bucket_bytes = 1_KiB};
  const Bytes least = minimum_bytes(graph, machine, options);
  const Bytes need = need_bytes(graph, machine);
  Plan most;
  for (Bytes eighths = 0; eighths < 8; ++eighths) {
    const Bytes budget = least + eighths * (need - least) / 8;
    Plan plan = std::get<Plan>(quick_plan(graph, machine, {.device = budget}, options));
    if (count_replays(plan) > count_replays(most)) most = std::move(plan);
  }
  return most;
}

EngineOptions options_with(bool verify) {
  EngineOptions options;
  options.seed = run_seed;
  options.verify_recompute = verify;
  return options;
}

// A kernel of the CPU's that, when it has run `fault_at` times for the op `faulty_op`, changes a bit of the
// last of its results, once. Kernels are plain functions: what they know is global.
std::atomic<Kernel> honest_kernel = nullptr;
std::atomic<const char*> faulty_op = nullptr;
std::atomic<int> fault_at = 0;  // counts down; 0: never
std::atomic<std::size_t> faulty_write = 0;

void flip_a_bit(const LaunchArguments& arguments) {
  honest_kernel.load()(arguments);
  if (arguments.op->name != faulty_op.load() || fault_at == 0 || --fault_at != 0) return;
  auto* byte = static_cast<std::byte*>(arguments.writes[faulty_write].data) +
               arguments.writes[faulty_write].tensor->bytes() - 1;
  *byte ^= std::byte{1};
}

LaunchTable table_that_flips(const Graph& graph, const char* op, int run, std::size_t write) {
  LaunchTable table = cpu_launch_table();
  const auto found =
      std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& each) { return each.name == op; });
  if (found == graph.ops.end()) {
    ADD_FAILURE() << "no op '" << op << "'";
    return table;
  }
  honest_kernel = table.find(*found);
  faulty_op = op;
  fault_at = run;
  faulty_write = write;
  table.add(found->kernel, flip_a_bit);
  return table;
}

class Verify : public ::testing::TestWithParam<Executor> {
 protected:
  static TrainingRun run_with(const Graph& graph, const Plan& plan, bool verify) {
    const auto device = open_simulated_device({.capacity = plan.device_peak_bytes, .executor = GetParam()});
    Engine engine(*device, graph, plan, options_with(verify));
    StepInputs inputs(graph, vocabulary);
    const std::uint64_t replays = verify ? count_replays(plan) : 0;
    const StepReport first = make_step(engine, inputs);
    EXPECT_EQ(first.verified_replays, replays);
    EXPECT_EQ(first.d2h_bytes, plan.d2h_bytes);
    EXPECT_EQ(first.h2d_bytes, plan.h2d_bytes);
    // What is compared leaves the device besides.
    EXPECT_EQ(device->counters().d2h_bytes > plan.d2h_bytes, replays > 0);
    TrainingRun run = run_engine(engine, graph, steps, vocabulary);
    EXPECT_EQ(device->counters().highest_device_byte, plan.device_peak_bytes);
    return run;
  }
};

TEST_P(Verify, FindsNothingInGptAndBertAndChangesNoNumber) {
  for (const Graph& graph : {gpt_graph(), bert_graph()}) {
    const Plan rebuilding = rebuilding_plan(graph);
    ASSERT_GT(count_replays(rebuilding), 4U);
    for (const Plan& plan : {rebuilding, least_plan(graph)})
      EXPECT_TRUE(run_with(graph, plan, true) == run_with(graph, plan, false));
  }
}

// The first op of this kernel that the plan replays, by name.
std::string replayed_op(const Graph& graph, const Plan& plan, std::string_view kernel) {
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == InstructionKind::recompute && graph.op(instruction.op).kernel == kernel)
      return graph.op(instruction.op).name;
  ADD_FAILURE() << "no replayed op of kernel " << kernel;
  return {};
}

TEST_P(Verify, NamesTheOpThatIsNotReplayable) {
  const Graph graph = gpt_graph();
  const Plan plan = rebuilding_plan(graph);
  const TrainingRun expected = run_evaluator(graph, cpu_launch_table(), steps, vocabulary);
  // The first result and the last, of ops in and behind a block's first half; layer_norm has three results.
  for (const auto& [kernel, write] : {std::pair{"layer_norm", 0}, {"layer_norm", 2}, {"linear_gelu", 1}}) {
    const std::string op = replayed_op(graph, plan, kernel);
    SCOPED_TRACE(op);
    const auto device = open_simulated_device({.capacity = plan.device_peak_bytes, .executor = GetParam()});
    EngineOptions options = options_with(true);
    // Launch and replay of steps 0 and 1, the launch of step 2, and then its replay.
    options.kernels = table_that_flips(graph, op.c_str(), 6, static_cast<std::size_t>(write));
    Engine engine(*device, graph, plan, options);
    StepInputs inputs(graph, vocabulary);
    make_step(engine, inputs);
    make_step(engine, inputs);
    try {
      make_step(engine, inputs);
      FAIL() << "the replay of '" << op << "' passed";
    } catch (const RecomputeMismatch& error) {
      const auto found =
          std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& each) { return each.name == op; });
      const std::string& tensor = graph.tensor(found->writes[static_cast<std::size_t>(write)]).name;
      EXPECT_EQ(error.op(), op);
      EXPECT_EQ(error.kernel(), kernel);
      EXPECT_EQ(error.tensor(), tensor);
      EXPECT_EQ(error.step(), 2U);
      EXPECT_EQ(error.lane(), LaneRole::compute);
      EXPECT_GT(error.bytes(), 0U);
      EXPECT_FALSE(error.step_counted());
      for (const std::string& part :
           {op, std::string(kernel), tensor, std::string("step 2"), std::string("call step again")})
        EXPECT_THAT(error.what(), HasSubstr(part));
    }
    // A step boundary: the same step once more, and all is as if nothing had been.
    EXPECT_EQ(engine.completed_steps(), 2U);
    EXPECT_TRUE(read_values(engine, graph) == run_evaluator(graph, cpu_launch_table(), 2, vocabulary).values);
    EXPECT_TRUE(run_engine(engine, graph, steps, vocabulary).values == expected.values);
  }
}

TEST_P(Verify, WithoutItTheSameFaultPasses) {
  const Graph graph = gpt_graph();
  const Plan plan = rebuilding_plan(graph);
  const std::string op = replayed_op(graph, plan, "layer_norm");
  const auto device = open_simulated_device({.capacity = plan.device_peak_bytes, .executor = GetParam()});
  EngineOptions options = options_with(false);
  options.kernels = table_that_flips(graph, op.c_str(), 2, 0);
  Engine engine(*device, graph, plan, options);
  EXPECT_NO_THROW(run_engine(engine, graph, 1, vocabulary));
  EXPECT_EQ(fault_at, 0);
}

INSTANTIATE_TEST_SUITE_P(Executors, Verify, ::testing::Values(Executor::threaded, Executor::virtual_time),
                         [](const auto& info) {
                           return info.param == Executor::threaded ? "threaded" : "virtual_time";
                         });

TEST(VerifyMode, NeedsNothingWhereThePlanReplaysNothing) {
  const Graph graph = gpt_graph();
  const Plan plan = std::get<Plan>(quick_plan(graph, Machine{}, {}, {.policy = Policy::none}));
  ASSERT_EQ(count_replays(plan), 0U);
  const auto pinned = [&](bool verify) {
    const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
    Engine engine(*device, graph, plan, options_with(verify));
    StepInputs inputs(graph, vocabulary);
    EXPECT_EQ(make_step(engine, inputs).verified_replays, 0U);
    return device->counters().pinned_allocations;
  };
  EXPECT_EQ(pinned(true), pinned(false));
}

class VerifyFaults : public ::testing::TestWithParam<std::tuple<Executor, Fault::Kind>> {};

// Every device call of a verified step fails once, the verifier's own among them.
TEST_P(VerifyFaults, EndInATypedErrorAtAStepBoundary) {
  const auto [executor, kind] = GetParam();
  const Graph graph = smallest_gpt(1);
  const Plan plan = rebuilding_plan(graph);
  ASSERT_GT(count_replays(plan), 0U);
  const FaultSweep sweep{graph, plan, cpu_launch_table(), executor, kind, 1, 3, true, 16};
  FaultSweep verified = sweep;
  verified.verify_recompute = true;
  // Two synchronisations and a copy at least for each launch and each replay that is looked at.
  EXPECT_GE(sweep_faults(verified), sweep_faults(sweep) + static_cast<int>(3 * 2 * count_replays(plan)));
}

INSTANTIATE_TEST_SUITE_P(Gpt, VerifyFaults,
                         ::testing::Combine(::testing::Values(Executor::virtual_time, Executor::threaded),
                                            ::testing::Values(Fault::Kind::call, Fault::Kind::work)),
                         stowage::test::printed_name);

}  // namespace
}  // namespace stowage
