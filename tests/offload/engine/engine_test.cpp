#include "stowage/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/tiny_step.h"
#include "tests/offload/engine/training_run.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace stowage::testing;

constexpr std::int32_t input_range = 5;
constexpr std::uint64_t steps = 6;

EngineOptions tiny_options() {
  EngineOptions options;
  options.seed = run_seed;
  options.kernels = tiny_kernels();
  return options;
}

struct TinyCase {
  const char* name;
  Plan (*plan)();
  Executor executor;
};

class TinyEngine : public ::testing::TestWithParam<TinyCase> {
 protected:
  std::unique_ptr<SimulatedDevice> open() const {
    return open_simulated_device({.capacity = plan.device_peak_bytes, .executor = GetParam().executor});
  }

  const Graph graph = tiny_graph();
  const Plan plan = GetParam().plan();
};

TEST_P(TinyEngine, PlansAreValid) { EXPECT_THAT(validate(graph, plan, {}), IsEmpty()); }

TEST_P(TinyEngine, LeavesTheBitsOfTheEvaluator) {
  const auto device = open();
  Engine engine(*device, graph, plan, tiny_options());
  const TrainingRun expected = run_evaluator(graph, tiny_kernels(), steps, input_range);
  EXPECT_EQ(run_engine(engine, graph, steps, input_range), expected);
  EXPECT_EQ(engine.completed_steps(), steps);
}

// Whichever of its buckets that is.
TEST_P(TinyEngine, LeavesTheSameBitsWhereABucketCannotBePageLocked) {
  const TrainingRun expected = run_evaluator(graph, tiny_kernels(), steps, input_range);
  EngineOptions options = tiny_options();
  options.pageable_fallback = true;
  std::set<BucketId> unpinned;
  for (std::uint64_t index = 0;; ++index) {
    const auto device = open();
    device->set_fault({.index = index});
    try {
      Engine engine(*device, graph, plan, options);
      if (!device->fault_fired()) break;
      ASSERT_THAT(engine.unpinned(), SizeIs(1));
      unpinned.insert(engine.unpinned().front());
      EXPECT_EQ(run_engine(engine, graph, steps, input_range), expected);
    } catch (const Error&) {
      EXPECT_TRUE(device->fault_fired());  // another call
    }
  }
  EXPECT_EQ(unpinned.size(), std::count_if(plan.buckets.begin(), plan.buckets.end(),
                                           [](const Bucket& bucket) { return bucket.pinned(); }));
}

TEST_P(TinyEngine, LeavesTheSameBitsWhereNothingCanBePageLocked) {
  const auto device = open_simulated_device(
      {.capacity = plan.device_peak_bytes, .host_capacity = 0, .executor = GetParam().executor});
  EngineOptions options = tiny_options();
  EXPECT_THROW(Engine(*device, graph, plan, options), OutOfMemory);
  options.pageable_fallback = true;
  Engine engine(*device, graph, plan, options);
  EXPECT_GT(engine.unpinned().size(), 1U);
  EXPECT_EQ(run_engine(engine, graph, steps, input_range),
            run_evaluator(graph, tiny_kernels(), steps, input_range));
}

TEST_P(TinyEngine, ReportsWhatThePlanSays) {
  const auto device = open();
  Engine engine(*device, graph, plan, tiny_options());
  StepInputs inputs(graph, input_range);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const StepReport report = make_step(engine, inputs);
    EXPECT_EQ(report.step, step);
    EXPECT_EQ(report.h2d_bytes, plan.h2d_bytes);
    EXPECT_EQ(report.d2h_bytes, plan.d2h_bytes);
    EXPECT_EQ(report.device_peak_bytes, plan.device_peak_bytes);
    EXPECT_GT(report.seconds, 0);
    EXPECT_GE(report.stall_fraction, 0);
    EXPECT_LE(report.stall_fraction, 1);
  }
  EXPECT_EQ(device->counters().device_allocations, 1U);
}

TEST_P(TinyEngine, AWrittenValueIsReadAndUsed) {
  const auto device = open();
  Engine engine(*device, graph, plan, tiny_options());
  StepInputs inputs(graph, input_range);
  make_step(engine, inputs);
  const std::vector<std::byte> zero(graph.tensor(tiny_weight).bytes(), std::byte{0});
  engine.write(tiny_weight, zero);
  EXPECT_EQ(engine.read(tiny_weight), zero);
  EXPECT_EQ(make_step(engine, inputs).loss, 0);
}

// An engine that gets another's values goes on with its bits.
TEST_P(TinyEngine, ValuesMoveToAnotherEngine) {
  const auto device = open();
  Engine engine(*device, graph, plan, tiny_options());
  StepInputs inputs(graph, input_range);
  make_step(engine, inputs);
  const auto values = read_values(engine, graph);

  const auto other_device = open();
  EngineOptions options = tiny_options();
  options.seed = run_seed + 1;
  Engine other(*other_device, graph, plan, options);
  make_step(other, inputs);
  EXPECT_NE(read_values(other, graph), values);
  for (TensorId id : {TensorId{1}, TensorId{6}, TensorId{7}}) other.write(id, values[id]);
  EXPECT_EQ(make_step(other, inputs).loss, make_step(engine, inputs).loss);
  EXPECT_EQ(read_values(other, graph), read_values(engine, graph));
}

// Like one that has made the steps before: random draws and bias correction go by the step's number.
TEST_P(TinyEngine, GoesOnFromAStep) {
  for (const std::uint64_t first : {2, 3}) {
    const auto device = open();
    Engine engine(*device, graph, plan, tiny_options());
    run_engine(engine, graph, first, input_range);
    const auto values = read_values(engine, graph);

    const auto other_device = open();
    EngineOptions options = tiny_options();
    options.first_step = first;
    Engine other(*other_device, graph, plan, options);
    EXPECT_EQ(other.completed_steps(), first);
    for (TensorId id = 0; id < values.size(); ++id)
      if (!values[id].empty()) other.write(id, values[id]);
    EXPECT_EQ(run_engine(other, graph, steps, input_range), run_engine(engine, graph, steps, input_range));
    EXPECT_EQ(other.completed_steps(), steps);
  }
}

TEST_P(TinyEngine, TheTimelineFollowsTheWaits) {
  const auto device = open();
  EngineOptions options = tiny_options();
  options.measurement = Measurement::timeline;
  Engine engine(*device, graph, plan, options);
  StepInputs inputs(graph, input_range);
  EXPECT_THAT(engine.last_timeline(), IsEmpty());
  for (int step = 0; step < 3; ++step) make_step(engine, inputs);
  const std::vector<Interval> timeline = engine.last_timeline();
  ASSERT_THAT(timeline, SizeIs(plan.instructions.size()));
  for (InstructionId id = 0; id < timeline.size(); ++id) {
    EXPECT_GE(timeline[id].begin, 0);
    EXPECT_GE(timeline[id].end, timeline[id].begin);
    for (const Wait& wait : plan.instructions[id].waits) {
      if (wait.steps_back == 0) {
        EXPECT_GE(timeline[id].begin, timeline[wait.instruction].end) << id;
      }
    }
    if (id > plan.gate) {
      EXPECT_GE(timeline[id].begin, timeline[plan.gate].end) << id;
    }
  }
}

TEST_P(TinyEngine, MeasuresNothingWhenNotAsked) {
  const auto device = open();
  EngineOptions options = tiny_options();
  options.measurement = Measurement::step;
  Engine engine(*device, graph, plan, options);
  const TrainingRun expected = run_evaluator(graph, tiny_kernels(), steps, input_range);
  EXPECT_EQ(run_engine(engine, graph, steps, input_range), expected);
  EXPECT_THAT(engine.last_timeline(), IsEmpty());
}

// Seconds and idle seconds are parts of the same wall time: none is counted twice.
TEST(Engine, TimeBehindADrainIsNoStepsTime) {
  using Clock = std::chrono::steady_clock;
  const Graph graph = tiny_graph();
  const Plan plan = tiny_streamed_plan();
  const auto device = open_simulated_device({.capacity = plan.device_peak_bytes});
  Engine engine(*device, graph, plan, tiny_options());
  StepInputs inputs(graph, input_range);
  const auto begin = Clock::now();
  const StepReport first = make_step(engine, inputs);
  const StepReport second = make_step(engine, inputs);
  constexpr double pause = 0.05;
  engine.drain();
  std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  const StepReport third = make_step(engine, inputs);
  const StepReport fourth = make_step(engine, inputs);
  const double wall = std::chrono::duration<double>(Clock::now() - begin).count();
  EXPECT_EQ(first.idle_seconds + second.idle_seconds + fourth.idle_seconds, 0);
  EXPECT_GE(third.idle_seconds, pause);
  EXPECT_GT(third.seconds, 0);
  EXPECT_LE(first.seconds + second.seconds + third.seconds + third.idle_seconds + fourth.seconds, wall);
}

TEST_P(TinyEngine, AWrongInputChangesNothing) {
  const auto device = open();
  Engine engine(*device, graph, plan, tiny_options());
  const std::vector<std::int32_t> right(tiny_elements, 1), wrong(tiny_elements - 1, 1);
  const InputData good{tiny_input, right};
  const auto refused = [&](std::vector<InputData> inputs) {
    EXPECT_THROW(engine.step(inputs, {}), InvalidInput);
  };
  refused({});
  refused({{tiny_input, wrong}});
  refused({good, good});
  refused({good, {tiny_weight, right}});
  refused({good, {1000, right}});
  EXPECT_EQ(engine.completed_steps(), 0U);
  const TrainingRun expected = run_evaluator(graph, tiny_kernels(), steps, input_range);
  EXPECT_EQ(run_engine(engine, graph, steps, input_range), expected);
}

TEST_P(TinyEngine, OnlyLastingValuesAreReadAndWritten) {
  const auto device = open();
  Engine engine(*device, graph, plan, tiny_options());
  EXPECT_THROW(engine.read(tiny_input), InvalidInput);
  EXPECT_THROW(engine.read(1000), InvalidInput);
  EXPECT_THROW(engine.write(graph.loss, std::vector<std::byte>(8)), InvalidInput);
  EXPECT_THROW(engine.write(tiny_weight, std::vector<std::byte>(8)), InvalidInput);
}

TEST_P(TinyEngine, ADeviceThatIsTooSmallIsOutOfMemory) {
  const auto device =
      open_simulated_device({.capacity = plan.device_peak_bytes - 1, .executor = GetParam().executor});
  EXPECT_THROW(Engine(*device, graph, plan, tiny_options()), OutOfMemory);
}

TEST_P(TinyEngine, NonFiniteValuesAreNotLearned) {
  const auto device = open();
  Engine engine(*device, graph, plan, tiny_options());
  StepInputs inputs(graph, input_range);
  std::vector<float> values(tiny_elements, std::numeric_limits<float>::infinity());
  engine.write(tiny_weight, std::as_bytes(std::span(values)));
  EXPECT_THROW(make_step(engine, inputs), NonFinite);
  EXPECT_EQ(engine.completed_steps(), 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, TinyEngine,
    ::testing::Values(TinyCase{"streamed_virtual", tiny_streamed_plan, Executor::virtual_time},
                      TinyCase{"streamed_threaded", tiny_streamed_plan, Executor::threaded},
                      TinyCase{"resident_virtual", tiny_resident_plan, Executor::virtual_time},
                      TinyCase{"resident_threaded", tiny_resident_plan, Executor::threaded}),
    [](const auto& info) { return info.param.name; });

TEST(Engine, AnInvalidPlanIsRefusedUnlessTrusted) {
  Plan plan = tiny_streamed_plan();
  plan.instructions[3].waits.clear();
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  EngineOptions options = tiny_options();
  EXPECT_THROW(Engine(*device, tiny_graph(), plan, options), InvalidInput);
  options.validate = false;
  EXPECT_NO_THROW(Engine(*device, tiny_graph(), plan, options));
}

// The bytes of a lifetime are dead after its end: a plan that ends one too early is found out.
TEST(Engine, ReadingALifetimeAfterItsEndIsAnError) {
  Plan plan = tiny_streamed_plan();
  plan.lifetimes[1].end = 2;  // the input, which backward reads once more
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  EngineOptions options = tiny_options();
  options.validate = false;
  Engine engine(*device, tiny_graph(), plan, options);
  StepInputs inputs(tiny_graph(), input_range);
  try {
    make_step(engine, inputs);
    FAIL();
  } catch (const StepError& error) {
    EXPECT_EQ(error.op(), "backward");
    EXPECT_THAT(error.what(), HasSubstr("undefined"));
  }
}

TEST(Engine, AnOpWithoutAKernelIsNamed) {
  Graph graph = tiny_graph();
  graph.ops[1].kernel = "unheard of";
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  try {
    Engine(*device, graph, tiny_streamed_plan(), tiny_options());
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("backward"));
    EXPECT_THAT(error.what(), HasSubstr("unheard of"));
  }
}

// Copies of graph and plan are the engine's own.
TEST(Engine, OutlivesGraphAndPlan) {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  const Graph kept = tiny_graph();
  auto graph = std::make_unique<Graph>(kept);
  auto plan = std::make_unique<Plan>(tiny_streamed_plan());
  Engine engine(*device, *graph, *plan, tiny_options());
  graph.reset();
  plan.reset();
  EXPECT_EQ(run_engine(engine, kept, steps, input_range),
            run_evaluator(kept, tiny_kernels(), steps, input_range));
}

}  // namespace
}  // namespace stowage
