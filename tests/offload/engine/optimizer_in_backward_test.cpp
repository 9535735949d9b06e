// Host updates that are made for good before the gate: the bits of any other run, and an end where a step
// fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/candidate.h"
#include "src/base/parallel_for.h"
#include "stowage/engine_group.h"
#include "stowage/models.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/speculating_gpt.h"
#include "tests/support/draws.h"
#include "tests/support/expect_refused.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t steps = draws<std::uint64_t>(16, 6);

SpikeInputs inputs_of(const Graph& graph) { return {graph, half_of_steps}; }

std::uint64_t early_updates(const Plan& plan) {
  std::uint64_t count = 0;
  for (InstructionId id = 0; id < plan.gate; ++id)
    count += plan.instructions[id].kind == InstructionKind::commit;
  return count;
}

Plan plan_in_backward(const Graph& graph, double part_of_range, Bytes bucket_bytes = 0) {
  const Machine machine = slow_host();
  PlanOptions options;
  options.bucket_bytes = bucket_bytes;
  options.optimizer_in_backward = true;
  Planner planner(graph, machine, options);
  const Bytes least = planner.minimum_bytes();
  const Bytes need = std::max(least, planner.need_bytes());
  const Bytes budget = least + static_cast<Bytes>(part_of_range * static_cast<double>(need - least));
  return std::get<Plan>(planner.answer({.device = budget}).outcome);
}

// Every update on the host, and made in backward, with the least device memory; but a parameter in slices
// stays from its first use to its last, so that the sum of its gradients does not rest on the host.
Plan plan_with_all_in_backward(const Graph& graph, MicroBatchOrder order = MicroBatchOrder::layer_major) {
  const Machine machine = slow_host();
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0}, order, {}, EarlyUpdates::final);
  Choices choices = lowest_choices(problem);
  choices.speculated.assign(problem.layout.buckets.size(), 1);
  for (const BucketId id : problem.layout.parameters)
    if (!problem.layout.slices[id].empty()) choices.loads[id] = LoadChoice::held;
  Plan plan = complete(problem, Sketcher(problem, choices).serial().draft);
  EXPECT_THAT(validate(graph, plan, {}), IsEmpty());
  EXPECT_GT(early_updates(plan), 0U);
  return plan;
}

std::unique_ptr<SimulatedDevice> open(const Plan& plan, Executor executor = Executor::virtual_time) {
  return open_simulated_device({.capacity = plan.device_peak_bytes, .executor = executor});
}

EngineOptions engine_options() {
  EngineOptions options;
  options.seed = run_seed;
  options.machine = slow_host();
  options.measurement = Measurement::step;
  return options;
}

using Types = std::tuple<Moments, DataType>;
class UpdatesInBackward : public ::testing::TestWithParam<Types> {
 protected:
  void TearDown() override { set_parallel_threads(0); }
  void expect_expected(const Plan& plan, Executor executor = Executor::virtual_time) const {
    const auto device = open(plan, executor);
    Engine engine(*device, graph_, plan, engine_options());
    const SpeculatingRun found = train(engine, graph_, inputs_of(graph_), steps, {});
    EXPECT_EQ(found.run.losses, expected_.losses);
    EXPECT_EQ(found.run.norms, expected_.norms);
    EXPECT_TRUE(found.run.values == expected_.values);
    EXPECT_THAT(found.speculated_updates, ::testing::Each(0U));
  }

  const Graph graph_ = speculating_gpt(0, std::get<Moments>(GetParam()), std::get<DataType>(GetParam()));
  const TrainingRun expected_ = evaluate(graph_, inputs_of(graph_), steps);
};

TEST_P(UpdatesInBackward, LeaveTheBitsOfTheEvaluator) {
  int threads = 1;
  std::uint64_t early = 0;
  for (const auto& [part_of_range, bucket_bytes] : {std::pair(0.0, 2_KiB), std::pair(1.0 / 3, Bytes{0})}) {
    SCOPED_TRACE(bucket_bytes);
    set_parallel_threads(threads++);
    const Plan plan = plan_in_backward(graph_, part_of_range, bucket_bytes);
    early += early_updates(plan);
    expect_expected(plan);
  }
  EXPECT_GT(early, 0U);
}

TEST_P(UpdatesInBackward, OfAllParametersLeaveTheBitsOfTheEvaluator) {
  const Plan plan = plan_with_all_in_backward(graph_);
  EXPECT_GT(plan.ring_bytes, 0U);
  for (const Executor executor : {Executor::virtual_time, Executor::threaded})
    expect_expected(plan, executor);
}

INSTANTIATE_TEST_SUITE_P(Types, UpdatesInBackward,
                         ::testing::Combine(::testing::Values(Moments::f32, Moments::bf16,
                                                              Moments::eight_bit),
                                            ::testing::Values(DataType::f32, DataType::bf16)),
                         [](const auto& types) {
                           return std::string(to_string(std::get<Moments>(types.param))) + "_of_" +
                                  std::string(to_string(std::get<DataType>(types.param)));
                         });

// Whether the ring has less of some gradient than all of it.
bool leaves_by_slices(const Plan& plan) {
  return std::any_of(plan.buckets.begin(), plan.buckets.end(), [](const Bucket& bucket) {
    return bucket.in_ring() && bucket.ring_bytes() < bucket.bytes;
  });
}

Graph divided_gpt(std::uint32_t rank, std::uint32_t ranks) {
  GraphBuilder builder;
  ModelConfig config = speculating_config();
  config.batch = config.micro_batches = 4;
  config.gradient_groups = 2;
  config.rank = rank;
  config.ranks = ranks;
  const BuiltModel model = gpt(builder, config);
  AdamW optimizer;
  optimizer.clip = 0;
  return builder.finish(model.loss, optimizer);
}

TEST(OptimizerInBackward, LeavesTheBitsOfTheEvaluatorWithMicroBatches) {
  const Graph graph = divided_gpt(0, 1);
  const TrainingRun expected = evaluate(graph, inputs_of(graph), steps);
  for (const MicroBatchOrder order : {MicroBatchOrder::layer_major, MicroBatchOrder::ahead(1)}) {
    const Plan plan = plan_with_all_in_backward(graph, order);
    const auto device = open(plan);
    Engine engine(*device, graph, plan, engine_options());
    const SpeculatingRun found = train(engine, graph, inputs_of(graph), steps, {});
    EXPECT_EQ(found.run.losses, expected.losses);
    EXPECT_TRUE(found.run.values == expected.values);
  }
}

TEST(OptimizerInBackward, LeavesTheBitsOfOneDeviceOnTwo) {
  const Graph whole = divided_gpt(0, 1);
  const std::vector<Graph> ranks{divided_gpt(0, 2), divided_gpt(1, 2)};
  const Plan plan = plan_with_all_in_backward(ranks[0]);
  const auto first = open(plan, Executor::threaded), second = open(plan, Executor::threaded);
  const std::vector<Device*> devices{first.get(), second.get()};
  EngineGroup group(devices, whole, ranks, plan, engine_options());
  SpikeInputs inputs = inputs_of(whole);
  const TrainingRun expected = evaluate(whole, inputs_of(whole), steps);
  for (std::uint64_t step = 0; step < steps; ++step) {
    const StepReport report = group.step(inputs.of(step), {speculating_rate(step)});
    EXPECT_EQ(std::bit_cast<std::uint64_t>(report.loss), expected.losses[step]);
  }
  for (TensorId id = 0; id < whole.tensors.size(); ++id)
    if (!expected.values[id].empty()) {
      EXPECT_TRUE(group.read(id) == expected.values[id]) << whole.tensor(id).name;
    }
}

// It does not know of the other's updates, even where it has made none itself.
TEST(OptimizerInBackward, ARankThatFailsHasMadeTheStepInPart) {
  const Graph whole = divided_gpt(0, 1);
  const std::vector<Graph> ranks{divided_gpt(0, 2), divided_gpt(1, 2)};
  const Plan plan = plan_with_all_in_backward(ranks[0]);
  const auto first = open(plan, Executor::threaded), second = open(plan, Executor::threaded);
  const std::vector<Device*> devices{first.get(), second.get()};
  EngineGroup group(devices, whole, ranks, plan, engine_options());
  SpikeInputs inputs = inputs_of(whole);
  group.step(inputs.of(0), {speculating_rate(0)});
  group.drain();
  first->set_fault({.index = 0, .kind = Fault::Kind::call});
  try {
    group.step(inputs.of(1), {speculating_rate(1)});
    ADD_FAILURE() << "the step was made";
  } catch (const StepError& error) {
    EXPECT_THAT(error.what(), HasSubstr("injected"));
    EXPECT_THAT(error.what(), HasSubstr("was made in part"));
    EXPECT_THAT(error.what(), HasSubstr("restore the last checkpoint"));
  }
}

Graph gpt_with_a_table_in_slices() {
  GraphBuilder builder;
  const BuiltModel model = gpt(builder, speculating_config());
  AdamW optimizer;
  optimizer.clip = 0;
  optimizer.grid = {.slice_bytes = 2_KiB, .most_slices = 8, .least_slices = 2, .least_share = 0.1};
  return builder.finish(model.loss, optimizer);
}
TEST(OptimizerInBackward, LeavesTheBitsOfTheEvaluatorWithATableInSlices) {
  const Graph graph = gpt_with_a_table_in_slices();
  EXPECT_EQ(graph.slices()[test::tensor_named(graph, "wte.weight")].size(), 8U);
  const TrainingRun expected = evaluate(graph, inputs_of(graph), steps);
  const Plan by_slices = plan_with_all_in_backward(graph);
  EXPECT_TRUE(leaves_by_slices(by_slices));
  for (const Executor executor : {Executor::virtual_time, Executor::threaded}) {
    for (const Plan& plan : {by_slices, plan_in_backward(graph, 0.2)}) {
      const auto device = open(plan, executor);
      Engine engine(*device, graph, plan, engine_options());
      const SpeculatingRun found = train(engine, graph, inputs_of(graph), steps, {});
      EXPECT_EQ(found.run.losses, expected.losses);
      EXPECT_TRUE(found.run.values == expected.values);
    }
  }
}

// Also where nobody has judged the plan.
TEST(OptimizerInBackward, RefusesToMoveMoreThanTheRingHasOfAGradient) {
  const Graph graph = gpt_with_a_table_in_slices();
  Plan plan = plan_with_all_in_backward(graph);
  for (Instruction& each : plan.instructions)
    if (each.kind == InstructionKind::offload) each.part = {};
  const auto device = open(plan);
  EngineOptions options = engine_options();
  options.validate = false;
  test::expect_refused([&] { Engine(*device, graph, plan, options); },
                       "of which the gradient ring has not all at once");
}

// The host's page-locked memory holds the ring once, and no gradient beside it.
TEST(OptimizerInBackward, TakesTheHostBytesOfItsPlan) {
  for (const Graph& graph : {speculating_gpt(0), gpt_with_a_table_in_slices()}) {
    const Plan plan = plan_with_all_in_backward(graph);
    Bytes in_ring = 0;
    for (const Bucket& bucket : plan.buckets) in_ring += bucket.in_ring() ? bucket.bytes : 0;
    ASSERT_LT(plan.ring_bytes, in_ring);
    const auto device = open_simulated_device({.capacity = plan.device_peak_bytes,
                                               .host_capacity = plan.pinned_bytes,
                                               .executor = Executor::virtual_time});
    Engine engine(*device, graph, plan, engine_options());
    const auto less = open_simulated_device({.capacity = plan.device_peak_bytes,
                                             .host_capacity = plan.pinned_bytes - 1,
                                             .executor = Executor::virtual_time});
    EXPECT_THROW(Engine(*less, graph, plan, engine_options()), OutOfMemory);
  }
}

class FailedStepInBackward : public ::testing::Test {
 protected:
  static constexpr std::uint64_t bad_step = 2;

  void expect_broken(Engine& engine) {
    EXPECT_EQ(engine.completed_steps(), bad_step);
    const TensorId parameter = test::tensor_named(graph_, "ln_f.weight");
    const auto expect_told = [](const auto& action) {
      try {
        action();
        ADD_FAILURE() << "accepted";
      } catch (const DeviceError& error) {
        EXPECT_THAT(error.what(), HasSubstr("was made in part"));
        EXPECT_THAT(error.what(), HasSubstr("restore the last checkpoint"));
      }
    };
    expect_told([&] { train(engine, graph_, inputs_of(graph_), bad_step + 1, {}); });
    expect_told([&] { engine.read(parameter); });
    std::vector<std::byte> value(graph_.tensor(parameter).bytes());
    expect_told([&] { engine.write(parameter, value); });
    expect_told([&] { engine.fill(parameter, [](Bytes, std::span<std::byte>) {}); });
  }

  const Graph graph_ = speculating_gpt(0);
  const Plan plan_ = plan_with_all_in_backward(graph_);
};

TEST_F(FailedStepInBackward, EndsTheRunWhereAValueIsNotFinite) {
  for (const Executor executor : {Executor::virtual_time, Executor::threaded}) {
    const auto device = open(plan_, executor);
    Engine engine(*device, graph_, plan_, engine_options());
    train(engine, graph_, inputs_of(graph_), bad_step, {});
    const TensorId id = test::tensor_named(graph_, "ln_f.weight");
    std::vector<std::byte> bad = engine.read(id);
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(bad.data(), &nan, sizeof nan);
    engine.write(id, bad);
    try {
      train(engine, graph_, inputs_of(graph_), bad_step + 1, {});
      ADD_FAILURE() << "the step was made";
    } catch (const NonFinite& error) {
      EXPECT_EQ(error.finding().origin, NonFinite::Origin::not_searched);
      EXPECT_EQ(error.finding().step, bad_step);
      EXPECT_FALSE(error.step_counted());
      EXPECT_THAT(error.what(), HasSubstr("step 2: loss NaN"));
      EXPECT_THAT(error.what(), HasSubstr("the step was made in part"));
      EXPECT_THAT(error.what(), HasSubstr("restore the last checkpoint"));
    }
    expect_broken(engine);
  }
}

// A fault before the first update leaves the step boundary, one behind the gate is mended, and one between
// them ends the run.
TEST_F(FailedStepInBackward, EndsTheRunBehindItsFirstUpdateAlone) {
  set_parallel_threads(1);
  std::vector<TrainingRun> expected;
  for (std::uint64_t count = 0; count <= bad_step + 2; ++count)
    expected.push_back(evaluate(graph_, inputs_of(graph_), count));
  for (const Fault::Kind kind : {Fault::Kind::call, Fault::Kind::work}) {
    int boundaries = 0, broken = 0;
    for (std::uint64_t call = 0; !HasFailure(); call += draws<std::uint64_t>(5, 41)) {
      SCOPED_TRACE("fault at call " + std::to_string(call));
      const auto device = open(plan_);
      Engine engine(*device, graph_, plan_, engine_options());
      train(engine, graph_, inputs_of(graph_), bad_step, {});
      engine.drain();
      device->set_fault({call, kind});
      bool is_broken = false;
      try {
        engine.step(inputs_of(graph_).of(bad_step), {speculating_rate(bad_step)});
        engine.drain();
      } catch (const StepError& error) {
        is_broken = std::string(error.what()).find("made in part") != std::string::npos;
      }
      device->clear_fault();
      if (!device->fault_fired()) break;
      ++(is_broken ? broken : boundaries);
      if (is_broken) {
        expect_broken(engine);
        continue;
      }
      const std::uint64_t done = engine.completed_steps();
      EXPECT_TRUE(read_values(engine, graph_) == expected[done].values);
      train(engine, graph_, inputs_of(graph_), bad_step + 2, {});
      EXPECT_TRUE(read_values(engine, graph_) == expected.back().values);
    }
    EXPECT_GT(boundaries, 3);
    EXPECT_GT(broken, 3);
  }
  set_parallel_threads(0);
}

TEST_F(FailedStepInBackward, RefusesStepsThatMayBeLeftOut) {
  const auto device = open(plan_);
  Engine engine(*device, graph_, plan_, engine_options());
  StepOptions options;
  options.loss_scale = LossScale{};
  test::expect_refused([&] { engine.step(inputs_of(graph_).of(0), options); }, "give no loss scale");
  train(engine, graph_, inputs_of(graph_), 1, {});
  test::expect_refused([&] { Engine(*device, speculating_gpt(1), plan_, engine_options()); },
                       "gradients are clipped");
  EngineOptions other = engine_options();
  other.host_kernels = cpu_launch_table();
  other.host_kernels->add("adamw", cpu_launch_table().find_if_present("adamw"));  // without its parts
  const auto second = open(plan_);
  test::expect_refused([&] { Engine(*second, graph_, plan_, other); }, "has no kernel 'adamw.unclipped'");
}

}  // namespace
}  // namespace stowage
