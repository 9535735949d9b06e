#include "tests/offload/engine/fault_sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/parallel_for.h"
#include "stowage/planner.h"
#include "tests/offload/engine/training_run.h"
#include "tests/support/draws.h"

namespace stowage::testing {
namespace {

using Values = std::vector<std::vector<std::byte>>;

// The thread sanitizer takes twenty times as long and looks for races, which any seventh call shows. Under
// the address sanitizer short plans have each of their calls fail, long ones every fifth.
std::uint64_t stride_for([[maybe_unused]] const Plan& plan) {
#if defined(__SANITIZE_THREAD__)
  return 7;
#else
  return fewer_draws && plan.instructions.size() > 40 ? 5 : 1;
#endif
}

class Sweeper {
 public:
  explicit Sweeper(const FaultSweep& sweep) : sweep_(sweep), inputs_(sweep.graph, sweep.input_range) {
    EXPECT_THAT(validate(sweep.graph, sweep.plan, {}), ::testing::IsEmpty());
    for (std::uint64_t steps = 0; steps <= sweep.steps; ++steps)
      expected_.push_back(run_evaluator(sweep.graph, sweep.kernels, steps, sweep.input_range));
  }

  int run() {
    set_parallel_threads(1);  // thousands of tiny steps
    std::uint64_t index = 0;
    for (; !::testing::Test::HasFailure(); index += stride_for(sweep_.plan)) {
      SCOPED_TRACE("fault at call " + std::to_string(index));
      if (!fault_at(index)) break;
    }
    return static_cast<int>(index);
  }

 private:
  // False when the step has no such call.
  bool fault_at(std::uint64_t index) {
    const auto device =
        open_simulated_device({.capacity = sweep_.plan.device_peak_bytes, .executor = sweep_.executor});
    {
      EngineOptions options;
      options.seed = run_seed;
      options.kernels = sweep_.kernels;
      options.measurement = Measurement::timeline;  // the most calls
      options.verify_recompute = sweep_.verify_recompute;
      options.validate = false;  // once is enough, see the constructor
      Engine engine(*device, sweep_.graph, sweep_.plan, options);
      while (engine.completed_steps() < sweep_.faulted_step) make_step(engine, inputs_);
      engine.drain();
      device->set_fault({index, sweep_.kind});
      const bool reported = step_with_fault(engine, *device);
      if (!device->fault_fired()) return false;
      EXPECT_TRUE(reported);
      expect_values(engine);
      go_on(engine);
    }
    EXPECT_EQ(device->memory_info().free, device->memory_info().total);
    return true;
  }

  bool step_with_fault(Engine& engine, SimulatedDevice& device) {
    const bool reported = expect_error(engine, true, [&] { make_step(engine, inputs_); });
    device.clear_fault();
    if (reported || !device.fault_fired()) return reported;
    // The update has failed behind the caller's back.
    return expect_error(engine, !sweep_.drain_after,
                        [&] { sweep_.drain_after ? engine.drain() : (void)make_step(engine, inputs_); });
  }

  template <class Action>
  bool expect_error(Engine& engine, bool steps, Action action) {
    const std::uint64_t before = engine.completed_steps();
    try {
      action();
      return false;
    } catch (const StepError& error) {
      EXPECT_FALSE(error.op().empty());
      EXPECT_GT(error.bytes(), 0U);
      EXPECT_FALSE(error.call().empty());
      EXPECT_NE(std::string(error.what()).find(error.op()), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(to_string(error.lane())), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find("lost"), std::string::npos) << error.what();
      EXPECT_EQ(engine.completed_steps(), before + (steps && error.step_counted() ? 1 : 0)) << error.what();
      return true;
    }
  }

  void expect_values(Engine& engine) {
    const std::uint64_t done = engine.completed_steps();
    ASSERT_LT(done, expected_.size());
    EXPECT_TRUE(read_values(engine, sweep_.graph) == expected_[done].values) << "after " << done << " steps";
  }

  void go_on(Engine& engine) {
    const std::uint64_t done = engine.completed_steps();
    const TrainingRun rest = run_engine(engine, sweep_.graph, sweep_.steps, sweep_.input_range);
    const TrainingRun& whole = expected_.back();
    EXPECT_TRUE(rest.values == whole.values);
    EXPECT_EQ(rest.losses,
              std::vector(whole.losses.begin() + static_cast<std::ptrdiff_t>(done), whole.losses.end()));
    EXPECT_EQ(rest.norms,
              std::vector(whole.norms.begin() + static_cast<std::ptrdiff_t>(done), whole.norms.end()));
  }

  const FaultSweep& sweep_;
  StepInputs inputs_;
  std::vector<TrainingRun> expected_;  // after 0, 1, … steps
};

}  // namespace

int sweep_faults(const FaultSweep& sweep) { return Sweeper(sweep).run(); }

}  // namespace stowage::testing
