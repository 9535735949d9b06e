// CUDA calls of a step fail, one at a time, over the fakes: a typed error, values as of the last completed
// step, and an engine that goes on.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>

#include "offload/engine/value_exchange.h"
#include "src/base/parallel_for.h"
#include "stowage/cuda_device.h"
#include "stowage/engine.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/fake_cuda/fake_cuda.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/draws.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::int32_t input_range = 16;
constexpr std::uint64_t faulted_step = 1;
constexpr std::uint64_t steps = 3;
constexpr int unknown_error = 0;  // of whichever API the call belongs to: cudaErrorUnknown, or cuBLAS's own

// Each of a step's calls takes a fifth of a second; with a stride prime to a step's pattern every sort is
// met.
constexpr unsigned stride = sanitized ? 131 : fewer_draws ? 43 : 13;

class CudaFaults : public ::testing::TestWithParam<bool> {
 protected:
  CudaFaults() { fake_cuda_reset(); }
  ~CudaFaults() override { fake_cuda_reset(); }
  void SetUp() override { device_ = open_cuda_device(); }
  void TearDown() override {
    device_.reset();
    const fake_cuda_live_objects live = fake_cuda_live();
    EXPECT_EQ(live.device_allocations + live.pinned_allocations + live.physical_allocations, 0U);
    EXPECT_EQ(live.streams + live.events + live.blas_objects, 0U);
  }

  static const Plan& plan() {
    if (GetParam()) {
      static const Plan in_the_least = quick_least_plan(graph(), {});
      return in_the_least;
    }
    static const Plan in_plenty = std::get<Plan>(quick_plan(graph(), {}, {}));
    return in_plenty;
  }
  static const Graph& graph() {
    static const Graph made = smallest_gpt(1);
    return made;
  }
  static std::unique_ptr<Engine> engine_on(Device& device) {
    EngineOptions options;
    options.seed = run_seed;
    options.validate = false;
    options.measurement = Measurement::timeline;  // the most calls
    return std::make_unique<Engine>(device, graph(), plan(), options);
  }

  // The first step's calls that fail when the nth from now on does; false when the step has no such call.
  bool fails_at(unsigned nth) {
    StepInputs inputs(graph(), input_range);
    const auto engine = engine_on(*device_);
    while (engine->completed_steps() < faulted_step) make_step(*engine, inputs);
    engine->drain();
    fake_cuda_fail_call(nullptr, nth, unknown_error);
    const bool reported = expect_error(*engine, inputs);
    const bool fired = fake_cuda_pending_faults() == 0;
    fake_cuda_forget_calls();
    if (!fired) return false;
    EXPECT_TRUE(reported);
    EXPECT_TRUE(read_values(*engine, graph()) == expected(engine->completed_steps()).values);
    EXPECT_TRUE(run_engine(*engine, graph(), steps, input_range).values == expected(steps).values);
    return true;
  }

  std::unique_ptr<Device> device_;

  const TrainingRun& expected(std::uint64_t count) {
    while (expected_.size() <= count)
      expected_.push_back(run_engine(*engine_on(*device_), graph(), expected_.size(), input_range));
    return expected_[count];
  }

 private:
  static bool expect_error(Engine& engine, StepInputs& inputs) {
    try {
      make_step(engine, inputs);
      engine.drain();
      return false;
    } catch (const StepError& error) {
      EXPECT_FALSE(error.op().empty());
      EXPECT_FALSE(error.call().empty());
      const std::string what = error.what();
      EXPECT_TRUE(what.find("(999)") != std::string::npos || what.find("(14)") != std::string::npos) << what;
      EXPECT_NE(std::string(error.what()).find(error.op()), std::string::npos) << error.what();
      return true;
    }
  }

  std::vector<TrainingRun> expected_;  // after 0, 1, … steps
};

TEST_P(CudaFaults, EndInATypedErrorAtAStepBoundary) {
  set_parallel_threads(1);
  unsigned nth = 1;
  for (; !HasFailure(); nth += stride) {
    SCOPED_TRACE("call " + std::to_string(nth));
    if (!fails_at(nth)) break;
  }
  set_parallel_threads(0);
  EXPECT_GT(nth, 3 * plan().instructions.size());
}

INSTANTIATE_TEST_SUITE_P(Budgets, CudaFaults, ::testing::Bool(),
                         [](const auto& parameter) { return parameter.param ? "least" : "unlimited"; });

TEST_P(CudaFaults, LeavesTheSameBitsWhereMemoryCannotBePageLocked) {
  const Plan& made = plan();
  const TrainingRun whole = expected(steps);
  for (const Bytes locked : {Bytes{0}, made.pinned_bytes / 2}) {
    fake_cuda_set_pinned(locked);
    EngineOptions options;
    options.seed = run_seed;
    options.pageable_fallback = true;
    Engine engine(*device_, graph(), made, options);
    EXPECT_FALSE(engine.unpinned().empty());
    EXPECT_TRUE(run_engine(engine, graph(), steps, input_range) == whole);
    EXPECT_EQ(fake_cuda_misuses().pageable_copies, 0U);
  }
}

// Of the second step: events recorded, and times asked for.
struct EventCalls {
  unsigned records = 0, times = 0;
};
EventCalls event_calls(const Graph& graph, const Plan& plan, Measurement measurement) {
  const auto device = open_cuda_device();
  EngineOptions options;
  options.measurement = measurement;
  Engine engine(*device, graph, plan, options);
  StepInputs inputs(graph, input_range);
  make_step(engine, inputs);
  fake_cuda_forget_calls();
  make_step(engine, inputs);
  engine.drain();
  EXPECT_EQ(fake_cuda_misuses().spinning_waits, 0U) << "the gate is waited for beside the host's updates";
  return {fake_cuda_calls("cudaEventRecord"), fake_cuda_calls("cudaEventElapsedTime")};
}

// A step without a timeline records what is waited for, and what the compute lane's stalls take.
TEST(CudaEvents, AStepRecordsNoMoreThanItsMeasurementTakes) {
  fake_cuda_reset();
  const Graph graph = smallest_gpt(1);
  const Plan plan = quick_least_plan(graph, {});
  std::set<InstructionId> waited{plan.gate};
  unsigned computing = 0, pausing = 0, on_streams = 0;
  for (const Instruction& instruction : plan.instructions) {
    for (const Wait& wait : instruction.waits) waited.insert(wait.instruction);
    computing += instruction.lane == LaneRole::compute ? 1 : 0;
    on_streams += instruction.lane != LaneRole::host ? 1 : 0;
    pausing += instruction.lane == LaneRole::compute && !instruction.waits.empty() ? 1 : 0;
  }
  const EventCalls step = event_calls(graph, plan, Measurement::step);
  const EventCalls stalls = event_calls(graph, plan, Measurement::stalls);
  const EventCalls timeline = event_calls(graph, plan, Measurement::timeline);
  EXPECT_EQ(step.times, 0U) << "from gate to gate, which are the host's";
  EXPECT_LE(step.records, waited.size() + 2) << "the loss may be one more, and the drain is";
  ASSERT_LT(pausing + 2, computing);
  EXPECT_GT(stalls.records, step.records);
  // Runs begin where the lane may have to wait, at the step's begin and behind the gate.
  EXPECT_LE(stalls.records, step.records + 2 * (pausing + 2));
  EXPECT_GE(timeline.records, on_streams);
  EXPECT_LT(timeline.records, 2 * on_streams);
  fake_cuda_reset();
}

// A kernel that faults loses the card: every later call says so, nothing hangs, nothing crashes.
TEST(CudaLost, AKernelsFaultIsReportedAndStays) {
  fake_cuda_reset();
  {
    const Graph graph = smallest_gpt(1);
    const auto device = open_cuda_device();
    Engine engine(*device, graph, std::get<Plan>(quick_plan(graph, {}, {})), {});
    StepInputs inputs(graph, input_range);
    make_step(engine, inputs);
    engine.drain();
    fake_cuda_fault_kernel(5, 700);  // cudaErrorIllegalAddress
    EXPECT_THROW(
        {
          make_step(engine, inputs);
          engine.drain();
        },
        StepError);
    EXPECT_THROW(make_step(engine, inputs), DeviceError);
  }
  fake_cuda_reset();
}

// Values that cards exchange pass through page-locked memory alone: a card reaches no other of the host.
TEST(CudaValueExchange, NeedsPageLockedMemory) {
  fake_cuda_reset();
  const auto card = open_cuda_device({.scratch = 1_MiB});
  const auto other = open_simulated_device({});
  const auto communicators = make_local_communicators(std::array<Device*, 1>{other.get()});
  fake_cuda_set_pinned(ValueExchange::most_bytes - 1);
  EXPECT_THROW(ValueExchange(*card, *communicators[0]), OutOfMemory);
  fake_cuda_reset();
}

}  // namespace
}  // namespace stowage
