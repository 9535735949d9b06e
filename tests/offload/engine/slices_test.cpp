// Plans that divide a parameter's slices between device and host: the bits of the Evaluator, whatever is
// where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/checkpoint.h"
#include "stowage/planner.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/fault_sweep.h"
#include "tests/offload/engine/training_run.h"
#include "tests/offload/engine/wait_sweep.h"
#include "tests/support/chain_graph.h"
#include "tests/support/draws.h"
#include "tests/support/mix_kernel.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"
#include "tests/support/sliced_plans.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::uint64_t steps = 4;
constexpr ChunkGrid small_grid{.slice_bytes = 1_KiB, .most_slices = 5, .least_slices = 2, .least_share = 0.1};

// A device of the plan's size, and an engine on it.
struct Trainer {
  Trainer(const Graph& graph, const Plan& plan, Executor executor = Executor::virtual_time,
          std::uint64_t first_step = 0, const LaunchTable& kernels = cpu_launch_table())
      : device(open_simulated_device({.capacity = plan.device_peak_bytes, .executor = executor})),
        engine(*device, graph, plan, options(first_step, kernels)) {}
  static EngineOptions options(std::uint64_t first_step, const LaunchTable& kernels) {
    EngineOptions options;
    options.seed = run_seed;
    options.first_step = first_step;
    options.kernels = kernels;
    return options;
  }
  std::unique_ptr<Device> device;
  Engine engine;
};

CheckpointState at_step_two() {
  CheckpointState state;
  state.step = 2;
  return state;
}

class SlicedEngine : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  static std::uint32_t on_device() { return GetParam(); }
};

TEST_P(SlicedEngine, LeavesTheBitsOfTheEvaluator) {
  for (DataType type : {DataType::f32, DataType::f64})
    for (std::int64_t micro_batches : {1, 2}) {
      const Graph graph = sliced_gpt(type, micro_batches);
      const TrainingRun expected = run_evaluator(graph, cpu_launch_table(), steps, sliced_vocabulary);
      for (Executor executor : {Executor::virtual_time, Executor::threaded})
        for (Bytes cap : {Bytes{0}, 64_KiB, unlimited}) {
          const Plan plan = plan_in_slices(graph, {}, on_device(), cap);
          Trainer run(graph, plan, executor);
          EXPECT_TRUE(run_engine(run.engine, graph, steps, sliced_vocabulary) == expected);
          EXPECT_EQ(run.device->counters().highest_device_byte, plan.device_peak_bytes);
        }
    }
}

// Updates of slices are late, those of other parameters may begin before the gate; of clipped steps and
// others.
TEST_P(SlicedEngine, OtherUpdatesMayBeEarly) {
  for (const double clip : {0.0, 0.5}) {
    Graph graph = sliced_gpt();
    for (Op& op : graph.ops)
      if (op.kernel == "clip") op.attributes = {{"clip", clip}};
    const Plan plan = plan_in_slices(graph, {}, on_device(), unlimited, OtherUpdates::early);
    EXPECT_THAT(validate(graph, plan, {}), ::testing::IsEmpty());
    EXPECT_GT(plan.undo_bytes, 0U);
    const TrainingRun expected = run_evaluator(graph, cpu_launch_table(), steps, sliced_vocabulary);
    for (Executor executor : {Executor::virtual_time, Executor::threaded}) {
      Trainer run(graph, plan, executor);
      StepInputs inputs(graph, sliced_vocabulary);
      const StepReport first = make_step(run.engine, inputs);
      EXPECT_EQ(first.clip_scale<1, clip> 0);
      EXPECT_GT(first.speculated_updates, 0U);
      EXPECT_TRUE(run_engine(run.engine, graph, steps, sliced_vocabulary).values == expected.values);
    }
  }
}

TEST_P(SlicedEngine, EveryWaitOfItsPlanIsNeeded) {
  const Graph graph = sliced_gpt();
  const WaitSweep sweep =
      sweep_waits(graph, plan_in_slices(graph, {}, on_device()), cpu_launch_table(), sliced_vocabulary);
  EXPECT_GT(sweep.caught, 0);
  EXPECT_EQ(sweep.implied, 0);
}

TEST_P(SlicedEngine, AFaultEndsAtAStepBoundary) {
  const Graph graph = sliced_gpt();
  const Plan plan = plan_in_slices(graph, {}, on_device());
  for (bool drain_after : {true, false}) {
    const int fired = sweep_faults({graph, plan, cpu_launch_table(), Executor::virtual_time,
                                    Fault::Kind::work, 1, 3, drain_after, sliced_vocabulary});
    EXPECT_GT(fired, static_cast<int>(plan.instructions.size()));
  }
}

// A part of a value that begins in one slice and ends in another, with other homes.
TEST_P(SlicedEngine, PartsOfValuesAreReadAndWrittenOverSlices) {
  const Graph graph = sliced_gpt();
  const TensorId table = find_tensor(graph, "wte.weight"), moment = find_tensor(graph, "wte.weight.adam_m");
  Trainer run(graph, plan_in_slices(graph, {}, on_device()));
  run_engine(run.engine, graph, 2, sliced_vocabulary);
  for (const TensorId id : {table, moment}) {
    const std::vector<std::byte> value = run.engine.read(id);
    const Bytes slice = value.size() / slices_of_table, begin = slice / 2;
    std::vector<std::byte> part(2 * slice);
    run.engine.read(id, begin, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), value.begin() + static_cast<std::ptrdiff_t>(begin)));
    std::vector<std::byte> changed = value;
    for (Bytes i = 0; i < part.size(); ++i) changed[begin + i] = part[i] = std::byte{1};
    run.engine.write(id, begin, part);
    EXPECT_TRUE(run.engine.read(id) == changed);
    run.engine.fill(id, [&](Bytes offset, std::span<std::byte> piece) {
      std::copy_n(value.begin() + static_cast<std::ptrdiff_t>(offset), piece.size(), piece.begin());
    });
    EXPECT_TRUE(run.engine.read(id) == value);
  }
  EXPECT_THROW(run.engine.read(find_tensor(graph, "wte.weight.slice0")), InvalidInput);
}

// Saved under one division, loaded under another: the names, shapes and bits are those of the wholes.
TEST_P(SlicedEngine, ACheckpointGoesOnUnderAnotherDivision) {
  const Graph graph = sliced_gpt();
  const TrainingRun expected = run_evaluator(graph, cpu_launch_table(), steps, sliced_vocabulary);
  const TemporaryFolder folder;
  Trainer before(graph, plan_in_slices(graph, {}, on_device()));
  run_engine(before.engine, graph, 2, sliced_vocabulary);
  CheckpointFolder checkpoints(folder.file("checkpoints"), 1);
  CheckpointSaver(checkpoints, graph, Saving::blocking).save(at_step_two(), state_access(before.engine));
  const std::string saved = folder.file("checkpoints/step-000000000002");
  for (std::uint32_t other = 0; other <= slices_of_table; ++other) {
    Trainer after(graph, plan_in_slices(graph, {}, other), Executor::virtual_time, 2);
    Checkpoint(saved).load(graph, state_access(after.engine));
    const TrainingRun rest = run_engine(after.engine, graph, steps, sliced_vocabulary);
    EXPECT_TRUE(rest.values == expected.values) << other;
    EXPECT_EQ(rest.losses.back(), expected.losses.back());
  }
}

INSTANTIATE_TEST_SUITE_P(OnDevice, SlicedEngine, ::testing::Range(0U, slices_of_table + 1));

TEST(Slices, RandomStepsLeaveTheBitsOfTheEvaluator) {
  LaunchTable kernels = cpu_launch_table();
  kernels.add("mix", mix_kernel);
  for (std::uint64_t seed = 0; seed < draws(20U, 4U); ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(seed, {.max_elements = 1 << 12, .grid = small_grid});
    const Machine machine = random_machine(seed);
    const TrainingRun expected = run_evaluator(graph, kernels, 3, 1000);
    const Bytes minimum = minimum_bytes(graph, machine), need = need_bytes(graph, machine);
    for (Bytes budget : {minimum, random_budget(seed, minimum, need), random_budget(~seed, minimum, need)}) {
      const Plan plan = std::get<Plan>(quick_plan(graph, machine, {.device = budget}));
      Trainer run(graph, plan, Executor::virtual_time, 0, kernels);
      EXPECT_TRUE(run_engine(run.engine, graph, 3, 1000) == expected) << budget;
    }
  }
}

}  // namespace
}  // namespace stowage
