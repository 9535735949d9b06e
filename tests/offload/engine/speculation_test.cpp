// Updates before the gate change no bit of a run, whether steps are clipped or not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/adamw_simd.h"
#include "src/base/parallel_for.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/speculating_gpt.h"
#include "tests/support/draws.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::AnyOf;
using ::testing::Each;

constexpr std::uint64_t steps = draws<std::uint64_t>(200, 24);
constexpr std::optional<bool> every_wish[] = {false, true, std::nullopt};

class SpeculatedRun : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    graph_ = new Graph(speculating_gpt());
    expected_ = new TrainingRun(evaluate(*graph_, inputs(), steps));
  }
  static void TearDownTestSuite() {
    delete graph_;
    delete expected_;
  }
  void TearDown() override {
    set_parallel_threads(0);
    cpu::use_instruction_set("");
  }

  static SpikeInputs inputs() { return {*graph_, half_of_steps}; }

  static std::unique_ptr<SimulatedDevice> open(const Plan& plan) {
    return open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
  }

  static EngineOptions options() {
    EngineOptions options;
    options.seed = run_seed;
    options.machine = slow_host();
    options.measurement = Measurement::step;
    return options;
  }

  static SpeculatingRun run(const Plan& plan, std::optional<bool> speculate,
                            const EngineOptions& engine_options = options()) {
    const auto device = open(plan);
    Engine engine(*device, *graph_, plan, engine_options);
    return train(engine, *graph_, inputs(), steps, speculate);
  }

  static void expect_expected(const SpeculatingRun& found) {
    EXPECT_EQ(found.run.losses, expected_->losses);
    EXPECT_EQ(found.run.norms, expected_->norms);
    EXPECT_TRUE(found.run.values == expected_->values);
  }

  static Graph* graph_;
  static TrainingRun* expected_;
};
Graph* SpeculatedRun::graph_ = nullptr;
TrainingRun* SpeculatedRun::expected_ = nullptr;

// The other tests mean something only if this one passes.
TEST_F(SpeculatedRun, HasClippedAndUnclippedSteps) {
  const SpeculatingRun found = run(speculating_plan(*graph_, 0), true);
  std::uint64_t clipped = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    EXPECT_EQ(found.clip_scales[step] < 1, half_of_steps(step)) << "step " << step;
    clipped += found.clip_scales[step] < 1 ? 1 : 0;
  }
  EXPECT_GT(clipped, steps / 4);
  EXPECT_LT(clipped, steps - steps / 4);
}

TEST_F(SpeculatedRun, LeavesTheBitsOfTheEvaluator) {
  int threads = 1;
  for (const Bytes bucket_bytes : {Bytes{0}, 2_KiB, 8_KiB})
    for (const double part_of_range : {0.0, 1.0 / 3}) {
      const Plan plan = speculating_plan(*graph_, part_of_range, bucket_bytes);
      for (const std::optional<bool> speculate : every_wish) {
        SCOPED_TRACE(std::to_string(part_of_range) + " of the range, buckets of " +
                     std::to_string(bucket_bytes));
        set_parallel_threads(threads);
        threads = 3 - threads;
        const SpeculatingRun found = run(plan, speculate);
        expect_expected(found);
        const std::uint64_t all = speculations_of(plan);
        if (speculate.has_value()) {
          EXPECT_THAT(found.speculated_updates, Each(*speculate ? all : 0));
        } else {
          EXPECT_THAT(found.speculated_updates, Each(AnyOf(0U, all)));
          EXPECT_THAT(found.speculated_updates, ::testing::Contains(all));
        }
      }
    }
}

// Plans with room for all parameters may have nothing to speculate.
TEST_F(SpeculatedRun, LeavesTheBitsOfTheEvaluatorWithRoomForAll) {
  for (const Bytes budget : {need_bytes(*graph_, slow_host()), unlimited}) {
    const Plan plan = std::get<Plan>(quick_plan(*graph_, slow_host(), {.device = budget}));
    for (const std::optional<bool> speculate : every_wish) expect_expected(run(plan, speculate));
  }
}

TEST_F(SpeculatedRun, LeavesTheSameBitsByEveryInstructionSet) {
  const Plan plan = speculating_plan(*graph_, 0);
  for (const std::string& set : cpu::instruction_sets())
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(set);
      cpu::use_instruction_set(set);
      set_parallel_threads(threads);
      expect_expected(run(plan, true));
    }
}

// A step leaves nothing behind that the next one with another wish would take for its own.
TEST_F(SpeculatedRun, MayChangeItsMindAtEveryStep) {
  const Plan plan = speculating_plan(*graph_, 0);
  const auto device = open(plan);
  Engine engine(*device, *graph_, plan, options());
  for (std::uint64_t step = 1; step < steps; ++step)
    train(engine, *graph_, inputs(), step, every_wish[step * step % 3]);
  train(engine, *graph_, inputs(), steps, true);
  EXPECT_TRUE(read_values(engine, *graph_) == expected_->values);
}

TEST_F(SpeculatedRun, LeavesTheSameBitsInVerifyMode) {
  const Plan plan = speculating_plan(*graph_, 0);
  EXPECT_TRUE(std::any_of(plan.instructions.begin(), plan.instructions.end(),
                          [](const Instruction& each) { return each.kind == InstructionKind::recompute; }));
  EngineOptions verifying = options();
  verifying.verify_recompute = true;
  for (const bool speculate : {true, false}) {
    const SpeculatingRun found = run(plan, speculate, verifying);
    expect_expected(found);
    EXPECT_THAT(found.speculated_updates, Each(speculate ? speculations_of(plan) : 0));
  }
}

void own_adamw(const LaunchArguments& arguments) {
  static const LaunchTable table = cpu_launch_table();
  table.find (*arguments.op)(arguments);
}

TEST_F(SpeculatedRun, NeedsATableWithThePartsOfTheUpdate) {
  const Plan plan = speculating_plan(*graph_, 0);
  EngineOptions without_parts = options();
  without_parts.kernels = cpu_launch_table();
  without_parts.kernels->add("adamw", own_adamw);
  const SpeculatingRun found = run(plan, true, without_parts);
  expect_expected(found);
  EXPECT_THAT(found.speculated_updates, Each(0U));
}

TEST_F(SpeculatedRun, NeedsAllPartsOfTheUpdate) {
  const Plan plan = speculating_plan(*graph_, 0);
  for (const char* part : {"adamw.speculate", "adamw.finish", "adamw.undo"}) {
    SCOPED_TRACE(part);
    EngineOptions with_one_part = options();
    with_one_part.kernels = cpu_launch_table();
    const Kernel kernel = with_one_part.kernels->find_if_present(part);
    ASSERT_NE(kernel, nullptr);
    with_one_part.kernels->add("adamw", own_adamw);
    with_one_part.kernels->add(part, kernel);
    const SpeculatingRun found = run(plan, true, with_one_part);
    expect_expected(found);
    EXPECT_THAT(found.speculated_updates, Each(0U));
  }
}

TEST(Speculation, StopsAfterClippedStepsInARow) {
  constexpr std::uint64_t row = Engine::clipped_in_a_row;
  // Clipped, but for the step before the row and the one behind it.
  const auto spikes = [](std::uint64_t step) { return step != 1 && step != 2 + row + 1; };
  const Graph graph = speculating_gpt();
  const Plan plan = speculating_plan(graph, 0);
  const auto device =
      open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
  EngineOptions options;
  options.machine = slow_host();
  Engine engine(*device, graph, plan, options);
  const SpeculatingRun found = train(engine, graph, {graph, spikes}, 2 + row + 4, std::nullopt);
  const std::uint64_t all = speculations_of(plan);
  for (std::uint64_t step = 0; step < found.clip_scales.size(); ++step) {
    EXPECT_EQ(found.clip_scales[step] < 1, spikes(step)) << "step " << step;
    // Steps 2 to row + 1 are the row.
    const bool stopped = step == 2 + row || step == 2 + row + 1;
    EXPECT_EQ(found.speculated_updates[step], stopped ? 0 : all) << "step " << step;
  }
}

}  // namespace
}  // namespace stowage
