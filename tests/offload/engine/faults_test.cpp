#include "offload/engine/faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/planner.h"
#include "tests/device/simulated/executors.h"
#include "tests/offload/engine/fault_sweep.h"
#include "tests/offload/engine/tiny_step.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/printed_name.h"
#include "tests/support/quick_plan.h"

namespace stowage {

static void PrintTo(Policy policy, std::ostream* out) { *out << to_string(policy); }

namespace {

using ::testing::HasSubstr;
using namespace stowage::testing;

constexpr std::int32_t input_range = 5;

struct SweepCase {
  Plan (*plan)();
  Executor executor;
  Fault::Kind kind;
  std::uint64_t step;
  bool drain_after;
};

class TinyFaults : public ::testing::TestWithParam<SweepCase> {};

TEST_P(TinyFaults, EndInATypedErrorAtAStepBoundary) {
  const Graph graph = tiny_graph();
  const Plan plan = GetParam().plan();
  const int fired = sweep_faults({graph, plan, tiny_kernels(), GetParam().executor, GetParam().kind,
                                  GetParam().step, 5, GetParam().drain_after, input_range});
  // At least the work, two records and the query of the times of every instruction.
  EXPECT_GT(fired, static_cast<int>(3 * plan.instructions.size()));
}

std::vector<SweepCase> sweep_cases() {
  std::vector<SweepCase> cases;
  for (auto plan : {tiny_streamed_plan, tiny_resident_plan})
    for (Executor executor : {Executor::virtual_time, Executor::threaded})
      for (Fault::Kind kind : {Fault::Kind::call, Fault::Kind::work})
        for (std::uint64_t step : {0U, 1U, 2U})
          for (bool drain_after : {true, false}) cases.push_back({plan, executor, kind, step, drain_after});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Tiny, TinyFaults, ::testing::ValuesIn(sweep_cases()), [](const auto& info) {
  const SweepCase& c = info.param;
  return std::string(c.plan == tiny_streamed_plan ? "streamed" : "resident") +
         (c.executor == Executor::threaded ? "_threaded" : "_virtual") +
         (c.kind == Fault::Kind::call ? "_call" : "_work") + "_step" + std::to_string(c.step) +
         (c.drain_after ? "_drain" : "_go_on");
});

class GptFaults : public ::testing::TestWithParam<std::tuple<Policy, Executor, Fault::Kind>> {};

TEST_P(GptFaults, EndInATypedErrorAtAStepBoundary) {
  const auto [policy, executor, kind] = GetParam();
  const Graph graph = smallest_gpt(1);
  const Machine machine;
  const PlanOptions options{.policy = policy, .bucket_bytes = 256};
  Planner planner = quick_planner(graph, machine, options);
  const Bytes budget = policy == Policy::none ? unlimited : planner.minimum_bytes();
  const Plan plan = std::get<Plan>(planner.answer({.device = budget}).outcome);
  for (bool drain_after : {true, false}) {
    if (!drain_after && kind == Fault::Kind::call) continue;  // reported at once: nothing to leave
    const int fired = sweep_faults({graph, plan, cpu_launch_table(), executor, kind, 2, 4, drain_after, 16});
    EXPECT_GT(fired, static_cast<int>(3 * plan.instructions.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(Gpt, GptFaults,
                         ::testing::Combine(::testing::Values(Policy::none, Policy::automatic),
                                            ::testing::Values(Executor::virtual_time, Executor::threaded),
                                            ::testing::Values(Fault::Kind::call, Fault::Kind::work)),
                         stowage::test::printed_name);

EngineOptions tiny_options() {
  EngineOptions options;
  options.seed = run_seed;
  options.kernels = tiny_kernels();
  options.measurement = Measurement::timeline;
  return options;
}

class EngineFaults : public ::testing::TestWithParam<Plan (*)()> {
 protected:
  const Graph graph = tiny_graph();
  const Plan plan = GetParam()();
};

// Every call of the constructor: a typed error, and all memory is given back.
TEST_P(EngineFaults, AConstructorThatFailsLeavesNothing) {
  for (std::uint64_t index = 0;; ++index) {
    SCOPED_TRACE(index);
    const auto device =
        open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
    device->set_fault({index, Fault::Kind::work});
    try {
      Engine engine(*device, graph, plan, tiny_options());
      ASSERT_FALSE(device->fault_fired());
      EXPECT_GT(index, 4 * plan.instructions.size());
      return;
    } catch (const Error&) {
      ASSERT_TRUE(device->fault_fired());
    }
    EXPECT_EQ(device->memory_info().free, device->memory_info().total);
  }
}

TEST_P(EngineFaults, AReadThatFailsCanBeRepeated) {
  const TrainingRun expected = run_evaluator(graph, tiny_kernels(), 2, input_range);
  for (Fault::Kind kind : {Fault::Kind::call, Fault::Kind::work}) {
    // Room for one value on its way, so that one left behind by a failed read is missed by the next.
    const auto device =
        open_simulated_device({.capacity = plan.device_peak_bytes,
                               .host_capacity = plan.pinned_bytes + graph.tensor(tiny_weight).bytes(),
                               .executor = Executor::virtual_time});
    Engine engine(*device, graph, plan, tiny_options());
    run_engine(engine, graph, 2, input_range);
    for (std::uint64_t index = 0;; ++index) {
      device->set_fault({index, kind});
      try {
        read_values(engine, graph);
      } catch (const Error&) {
        ASSERT_TRUE(device->fault_fired());
      }
      const bool fired = device->fault_fired();
      device->clear_fault();
      EXPECT_EQ(read_values(engine, graph), expected.values);
      if (!fired) break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, EngineFaults, ::testing::Values(tiny_streamed_plan, tiny_resident_plan),
                         [](const auto& info) {
                           return info.param == tiny_streamed_plan ? "streamed" : "resident";
                         });

// The failed work is named, not what the engine was waiting for.
TEST(Faults, WorkThatFailsOnItsLaneIsNamed) {
  const Graph graph = tiny_graph();
  const Plan plan = tiny_streamed_plan();
  LaunchTable kernels = tiny_kernels();
  kernels.add("backward", [](const LaunchArguments&) { throw std::runtime_error("out of luck"); });
  const auto device = open_simulated_device({.executor = Executor::threaded});
  EngineOptions options;
  options.kernels = kernels;
  Engine engine(*device, graph, plan, options);
  StepInputs inputs(graph, input_range);
  try {
    make_step(engine, inputs);
    FAIL();
  } catch (const StepError& error) {
    EXPECT_EQ(error.op(), "backward");
    EXPECT_EQ(error.lane(), LaneRole::compute);
    EXPECT_EQ(error.call(), "launch");
    EXPECT_EQ(error.bytes(), 3U * 4 * tiny_elements);
    EXPECT_FALSE(error.step_counted());
    EXPECT_THAT(error.what(), HasSubstr("out of luck"));
    EXPECT_THAT(error.what(), HasSubstr("step 0"));
  }
}

// An update on the device that cannot be made up for says so, and the engine refuses to go on.
TEST(Faults, AnUpdateThatKeepsFailingIsLost) {
  const Graph graph = tiny_graph();
  const Plan plan = tiny_resident_plan();
  LaunchTable kernels = tiny_kernels();
  kernels.add("adamw", [](const LaunchArguments&) { throw std::runtime_error("out of luck"); });
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  EngineOptions options;
  options.kernels = kernels;
  Engine engine(*device, graph, plan, options);
  StepInputs inputs(graph, input_range);
  make_step(engine, inputs);
  try {
    engine.drain();
    FAIL();
  } catch (const StepError& error) {
    EXPECT_THAT(error.what(), HasSubstr("lost"));
    EXPECT_EQ(error.op(), "adamw");
  }
  EXPECT_THROW(make_step(engine, inputs), DeviceError);
  EXPECT_THROW(engine.read(tiny_weight), DeviceError);
}

}  // namespace
}  // namespace stowage
