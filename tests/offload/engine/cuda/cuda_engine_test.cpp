// Training on a CUDA device, on a card or over the fakes: the same bits at every budget, exactly the planned
// bytes, and near what the CPU computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/math/bfloat16.h"
#include "stowage/cuda_device.h"
#include "stowage/engine.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/draws.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::uint64_t steps = 3;
constexpr std::int32_t vocabulary = 48;

Graph make_gpt(DataType type, double dropout, std::int64_t micro_batches = 1) {
  GraphBuilder builder(type);
  const BuiltModel model = gpt(builder, {.layers = 2,
                                         .width = 32,
                                         .heads = 2,
                                         .vocabulary = vocabulary,
                                         .sequence = 16,
                                         .batch = 2,
                                         .micro_batches = micro_batches,
                                         .dropout = dropout,
                                         .head_tokens = 12});
  return builder.finish(model.loss, AdamW{});
}

Plan plan_in(Planner& planner, Bytes budget) {
  auto planned = planner.answer({.device = budget}).outcome;
  if (!std::holds_alternative<Plan>(planned)) {
    ADD_FAILURE() << "nothing fits " << budget << " bytes";
    return {};
  }
  return std::get<Plan>(std::move(planned));
}

Plan plan_in_plenty(const Graph& graph, Policy policy = Policy::automatic) {
  return std::get<Plan>(quick_plan(graph, {}, {}, {.policy = policy}));
}

std::uint64_t count_replays(const Plan& plan) {
  return static_cast<std::uint64_t>(std::count_if(
      plan.instructions.begin(), plan.instructions.end(),
      [](const Instruction& instruction) { return instruction.kind == InstructionKind::recompute; }));
}

class CudaEngine : public ::testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    const CudaStatus status = cuda_status();
    if (!status.available) GTEST_SKIP() << status.reason;
    device_ = open_cuda_device();
  }

  // The run under a plan, with what the device says of it.
  TrainingRun train(const Graph& graph, const Plan& plan, bool verify = false) {
    device_->reset_counters();
    EngineOptions options;
    options.seed = run_seed;
    options.verify_recompute = verify;
    TrainingRun run;
    {
      Engine engine(*device_, graph, plan, options);
      StepInputs inputs(graph, vocabulary);
      const StepReport first = make_step(engine, inputs);
      run = run_engine(engine, graph, steps, vocabulary);
      run.losses.insert(run.losses.begin(), std::bit_cast<std::uint64_t>(first.loss));
      run.norms.insert(run.norms.begin(), std::bit_cast<std::uint64_t>(first.grad_norm));
      EXPECT_EQ(device_->counters().highest_device_byte, plan.device_peak_bytes);
      const StepReport last = make_step(engine, inputs);
      EXPECT_EQ(last.h2d_bytes, plan.h2d_bytes);
      EXPECT_EQ(last.d2h_bytes, plan.d2h_bytes);
      EXPECT_EQ(last.verified_replays, verify ? count_replays(plan) : 0);
    }
    return run;
  }

  std::unique_ptr<Device> device_;
};

TEST_P(CudaEngine, HasTheSameBitsAtEveryBudget) {
  for (double dropout : {0.0, 0.1}) {
    const Graph graph = make_gpt(GetParam(), dropout);
    const TrainingRun whole = train(graph, plan_in_plenty(graph, Policy::none));
    for (std::uint64_t seed = 0; seed < draws(4U, 2U); ++seed) {
      const Machine machine = random_machine(seed);
      const PlanOptions options{.bucket_bytes = seed % 2 == 0 ? Bytes{0} : 4_KiB};
      Planner planner = quick_planner(graph, machine, options);
      const Bytes least = planner.minimum_bytes();
      const Bytes budget = seed == 0 ? least : random_budget(seed, least, planner.need_bytes());
      SCOPED_TRACE(budget);
      EXPECT_TRUE(train(graph, plan_in(planner, budget)) == whole);
    }
  }
}

TEST_P(CudaEngine, VerifyModeFindsEachReplayToBeTheSame) {
  const Graph graph = make_gpt(GetParam(), 0.1);
  constexpr Link slow{.bytes_per_second = 1e6, .latency_seconds = 1e-6};
  const Machine machine{.h2d = slow, .d2h = slow};
  Planner planner = quick_planner(graph, machine);
  const Plan plan = plan_in(planner, (planner.minimum_bytes() + planner.need_bytes()) / 2);
  ASSERT_GT(count_replays(plan), 0U);
  EXPECT_TRUE(train(graph, plan, true) == train(graph, plan, false));
}

TEST_P(CudaEngine, HasTheSameBitsInBothOrdersOfMicroBatches) {
  const Graph graph = make_gpt(GetParam(), 0.1, 2);
  const TrainingRun whole = train(graph, plan_in_plenty(graph, Policy::none));
  for (MicroBatchOrder order : {MicroBatchOrder::layer_major, MicroBatchOrder::ahead(1)}) {
    for (Bytes bucket : {Bytes{0}, 4_KiB}) {
      if (fewer_draws && (bucket == 0) == (order == MicroBatchOrder::layer_major)) continue;
      const PlanOptions options{.bucket_bytes = bucket, .order = order};
      const Machine machine;
      Planner planner = quick_planner(graph, machine, options);
      const Bytes least = planner.minimum_bytes();
      for (Bytes budget : {least, least + least / 2}) {
        if (sanitized && budget > least) continue;
        SCOPED_TRACE(budget);
        EXPECT_TRUE(train(graph, plan_in(planner, budget)) == whole);
      }
    }
  }
}

double real(std::uint64_t bits) { return std::bit_cast<double>(bits); }

void expect_learns_as(const TrainingRun& run, DataType type) {
  const TrainingRun exact =
      run_evaluator(make_gpt(DataType::f64, 0.1), cpu_launch_table(), steps, vocabulary);
  // Of a sum of some thousand roundings, and of steps whose direction they have turned a little.
  const double tolerance = type == DataType::f32 ? 1e-5 : 2e-2;
  for (std::size_t step = 0; step < steps; ++step) {
    EXPECT_NEAR(real(run.losses[step]), real(exact.losses[step]), tolerance * real(exact.losses[step]));
    EXPECT_NEAR(real(run.norms[step]), real(exact.norms[step]), 10 * tolerance * real(exact.norms[step]));
  }
  // Every step has other tokens, drawn alike: whether the loss falls says nothing, that it moves does.
  EXPECT_NE(run.losses.back(), run.losses.front());
}

// Those are the card's alone, and the gate is the host's.
TEST_P(CudaEngine, TakesKernelsOfTheCardFromTheCaller) {
  const Graph graph = make_gpt(GetParam(), 0.1);
  const Plan plan = plan_in_plenty(graph, Policy::none);
  const std::uint64_t loss = train(graph, plan).losses.front();
  EngineOptions options;
  options.seed = run_seed;
  options.kernels = launch_table_for(*device_);
  Engine engine(*device_, graph, plan, options);
  StepInputs inputs(graph, vocabulary);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(make_step(engine, inputs).loss), loss);
}

// In micro-batches as well, which draw the same masks.
TEST_P(CudaEngine, LearnsWhatTheCpuLearns) {
  for (std::int64_t micro_batches : {1, 2}) {
    const Graph graph = make_gpt(GetParam(), 0.1, micro_batches);
    expect_learns_as(train(graph, plan_in_plenty(graph)), GetParam());
  }
}

// The optimizer's other half of each weight is at work: masters move by less than bf16 can hold.
TEST_P(CudaEngine, KeepsMasterWeights) {
  if (GetParam() != DataType::bf16) return;
  const Graph graph = make_gpt(DataType::bf16, 0);
  const TrainingRun run = train(graph, plan_in_plenty(graph));
  std::size_t low_bits = 0;
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensor(id).type != DataType::i16) continue;
    for (const std::byte byte : run.values[id]) low_bits += byte != std::byte{0} ? 1 : 0;
  }
  EXPECT_GT(low_bits, 1000U);
}

INSTANTIATE_TEST_SUITE_P(Types, CudaEngine, ::testing::Values(DataType::f32, DataType::bf16, DataType::f16),
                         [](const auto& parameter) { return std::string(to_string(parameter.param)); });

}  // namespace
}  // namespace stowage
