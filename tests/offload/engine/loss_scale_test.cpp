#include "stowage/loss_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/base/parallel_for.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/speculating_gpt.h"
#include "tests/support/draws.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::HasSubstr;

constexpr std::uint64_t steps = 12;

TEST(LossScale, HalvesAtAnOverflowAndDoublesAfterManyStepsWithout) {
  const LossScale begin{1024, 7, 2};
  EXPECT_EQ(next(begin, true), (LossScale{512, 0, 3}));
  EXPECT_EQ(next(begin, false), (LossScale{1024, 8, 2}));
  LossScale scale{1024};
  for (std::uint64_t step = 0; step + 1 < LossScale::steps_to_double; ++step) scale = next(scale, false);
  EXPECT_EQ(scale, (LossScale{1024, LossScale::steps_to_double - 1, 0}));
  EXPECT_EQ(next(scale, false), (LossScale{2048, 0, 0}));
  EXPECT_EQ(next(scale, true), (LossScale{512, 0, 1}));
}

TEST(LossScale, StaysInItsRange) {
  const std::uint64_t last = LossScale::steps_to_double - 1;
  EXPECT_EQ(next(LossScale{LossScale::most, last, 0}, false), (LossScale{LossScale::most, 0, 0}));
  EXPECT_EQ(next(LossScale{LossScale::least, 0, 0}, true), (LossScale{LossScale::least, 0, 1}));
  EXPECT_TRUE(is_valid(LossScale{}));
  for (const double scale :
       {0.0, 0.5, 3.0, -2.0, 0x1p25, std::nan(""), std::numeric_limits<double>::infinity()})
    EXPECT_FALSE(is_valid(LossScale{scale})) << scale;
  EXPECT_FALSE(is_valid(LossScale{2, LossScale::steps_to_double, 0}));
}

struct ScaledRun {
  SpeculatingRun made;
  std::vector<bool> overflowed;  // by step
  LossScale next;
};

// How a run is made, which no bit may depend on.
struct Way {
  double part_of_range = 0.25;
  Bytes bucket_bytes = 0;
  std::optional<bool> speculate = {};
  int threads = 2;
};

std::atomic<bool> positions_overflow = false;  // kernels are plain functions

class ScaledSteps : public ::testing::Test {
 protected:
  void TearDown() override {
    set_parallel_threads(0);
    positions_overflow = false;
  }

  static std::unique_ptr<SimulatedDevice> open(const Plan& plan) {
    return open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
  }
  static EngineOptions options() {
    EngineOptions options;
    options.seed = run_seed;
    options.machine = slow_host();
    return options;
  }

  static ScaledRun run(const Graph& graph, std::optional<LossScale> scale, const Way& way = {}) {
    set_parallel_threads(way.threads);
    const Plan plan = speculating_plan(graph, way.part_of_range, way.bucket_bytes);
    const auto device = open(plan);
    Engine engine(*device, graph, plan, options());
    SpikeInputs inputs(graph, half_of_steps);
    ScaledRun result;
    while (engine.completed_steps() < steps) {
      const auto before = read_values(engine, graph);
      const StepReport report =
          engine.step(inputs.of(engine.completed_steps()), {1e-3, way.speculate, scale});
      EXPECT_EQ(read_values(engine, graph) == before, report.overflowed) << report.step;
      result.overflowed.push_back(report.overflowed);
      result.made.run.losses.push_back(std::bit_cast<std::uint64_t>(report.loss));
      result.made.run.norms.push_back(std::bit_cast<std::uint64_t>(report.grad_norm));
      result.made.clip_scales.push_back(report.clip_scale);
      if (scale) scale = next(*scale, report.overflowed);
    }
    result.made.run.values = read_values(engine, graph);
    result.next = scale.value_or(LossScale{});
    return result;
  }
};

// A power of two changes no bit of what neither overflows nor underflows, clipped or not: f32 here.
TEST_F(ScaledSteps, HaveTheBitsOfUnscaledOnes) {
  const Graph graph = speculating_gpt();
  const ScaledRun plain = run(graph, std::nullopt);
  EXPECT_TRUE(std::any_of(plain.made.clip_scales.begin(), plain.made.clip_scales.end(),
                          [](double scale) { return scale < 1; }));
  for (const double scale : {1.0, 1024.0, 0x1p24}) {
    const ScaledRun scaled = run(graph, LossScale{scale});
    EXPECT_TRUE(scaled.made.run == plain.made.run) << scale;
    EXPECT_EQ(scaled.made.clip_scales, plain.made.clip_scales) << scale;
    EXPECT_EQ(scaled.next, (LossScale{scale, steps, 0}));
  }
}

TEST_F(ScaledSteps, InHalfPrecisionHaveTheBitsOfUnscaledOnesAtOne) {
  const Graph graph = speculating_gpt(spike_clip, Moments::f32, DataType::f16);
  EXPECT_TRUE(run(graph, LossScale{1}).made.run == run(graph, std::nullopt).made.run);
}

// The first steps overflow: nothing changes, whatever was speculated, until the scale has come down.
TEST_F(ScaledSteps, AreSkippedWhereTheyOverflowInEveryWayToTheSameBits) {
  for (const Moments moments : {Moments::f32, Moments::bf16, Moments::eight_bit}) {
    if (sanitized && moments == Moments::bf16) continue;
    SCOPED_TRACE(to_string(moments));
    const Graph graph = speculating_gpt(spike_clip, moments, DataType::f16);
    const ScaledRun first = run(graph, LossScale{0x1p24});
    const auto skipped =
        static_cast<std::uint64_t>(std::count(first.overflowed.begin(), first.overflowed.end(), true));
    EXPECT_TRUE(first.overflowed.front());
    EXPECT_FALSE(first.overflowed.back());
    EXPECT_EQ(first.next.skipped_steps, skipped);
    EXPECT_EQ(first.next.scale, std::ldexp(0x1p24, -static_cast<int>(skipped)));
    for (const Way& way :
         {Way{.speculate = true}, Way{.speculate = false}, Way{.part_of_range = 0, .speculate = true},
          Way{.bucket_bytes = 1_KiB, .threads = 1}, Way{.part_of_range = 0.5, .threads = 3}}) {
      const ScaledRun other = run(graph, LossScale{0x1p24}, way);
      EXPECT_TRUE(other.made.run == first.made.run);
      EXPECT_EQ(other.overflowed, first.overflowed);
      EXPECT_EQ(other.next, first.next);
    }
  }
}

// AdamW's own count leaves skipped steps out: the first update of a run is corrected as a first one.
TEST_F(ScaledSteps, CountNoSkippedOneInTheOptimizer) {
  const Graph graph = speculating_gpt(0);
  const Plan plan = speculating_plan(graph, 0.25);
  const auto updated = [&](std::uint64_t first_step, std::uint64_t skipped) {
    const auto device = open(plan);
    EngineOptions with = options();
    with.first_step = first_step;
    Engine engine(*device, graph, plan, with);
    SpikeInputs inputs(graph, [](std::uint64_t) { return false; });
    const TensorId m = graph.ops.back().writes[1], p = graph.ops.back().writes[0];
    engine.step(inputs.of(0), {1e-3, {}, LossScale{2, 0, skipped}});
    return std::pair(engine.read(m), engine.read(p));
  };
  const auto fourth_without_updates = updated(3, 3), fourth = updated(3, 0);
  EXPECT_NE(fourth_without_updates.second, fourth.second);
  EXPECT_EQ(fourth_without_updates.first, fourth.first);
}

TEST_F(ScaledSteps, AreAnErrorWhereNoSmallerScaleCouldHelp) {
  const Graph graph = speculating_gpt(spike_clip, Moments::f32, DataType::f16);
  const Plan plan = speculating_plan(graph, 0.25);
  const auto device = open(plan);
  Engine engine(*device, graph, plan, options());
  SpikeInputs inputs(graph, half_of_steps);
  const Op& loss = *std::find_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) {
    return std::find(op.writes.begin(), op.writes.end(), graph.loss) != op.writes.end();
  });
  const TensorId weight = loss.reads[1];
  const std::vector<std::byte> good = engine.read(weight);
  std::vector<std::byte> bad = good;
  std::fill(bad.begin(), bad.begin() + 64, std::byte{0x7e});  // NaN, and so is the loss
  engine.write(weight, bad);
  EXPECT_THROW(engine.step(inputs.of(0), {1e-3, {}, LossScale{}}), NonFinite);
  EXPECT_TRUE(engine.read(weight) == bad);
  EXPECT_EQ(engine.completed_steps(), 0U);
  engine.write(weight, good);
  engine.step(inputs.of(0), {1e-3, {}, LossScale{1}});
  EXPECT_EQ(engine.completed_steps(), 1U);
}

// Writes an infinity into the gradient of the positions; the loss and all other gradients stay finite.
void overflowing_position_backward(const LaunchArguments& arguments) {
  static const Kernel honest = cpu_launch_table().find(*arguments.op);
  honest(arguments);
  const float infinity = std::numeric_limits<float>::infinity();
  if (positions_overflow) std::memcpy(arguments.writes[0].data, &infinity, sizeof infinity);
}

TEST_F(ScaledSteps, WithAnInfiniteNormAreSkippedAboveTheLeastScaleAndAnErrorAtIt) {
  const Graph graph = speculating_gpt();
  const Plan plan = speculating_plan(graph, 0.25);
  for (const bool speculate : {false, true}) {
    SCOPED_TRACE(speculate);
    const auto device = open(plan);
    EngineOptions with = options();
    with.kernels = cpu_launch_table();
    with.kernels->add("position_backward", overflowing_position_backward);
    Engine engine(*device, graph, plan, with);
    SpikeInputs inputs(graph, half_of_steps);
    const auto before = read_values(engine, graph);

    positions_overflow = true;
    try {
      engine.step(inputs.of(0), {1e-3, speculate, LossScale{LossScale::least}});
      ADD_FAILURE() << "the step was made";
    } catch (const NonFinite& error) {
      EXPECT_TRUE(std::isfinite(error.finding().loss));
      EXPECT_TRUE(std::isinf(error.finding().grad_norm));
    }
    EXPECT_EQ(engine.completed_steps(), 0U);
    EXPECT_TRUE(read_values(engine, graph) == before);

    const LossScale scale{2 * LossScale::least};
    const StepReport skipped = engine.step(inputs.of(0), {1e-3, speculate, scale});
    EXPECT_TRUE(skipped.overflowed);
    EXPECT_TRUE(std::isfinite(skipped.loss));
    EXPECT_TRUE(std::isinf(skipped.grad_norm));
    EXPECT_EQ(engine.completed_steps(), 1U);
    EXPECT_TRUE(read_values(engine, graph) == before);

    positions_overflow = false;
    EXPECT_FALSE(engine.step(inputs.of(1), {1e-3, speculate, next(scale, true)}).overflowed);
    EXPECT_FALSE(read_values(engine, graph) == before);
  }
}

TEST_F(ScaledSteps, RefuseAScaleThatIsNone) {
  const Graph graph = speculating_gpt();
  const Plan plan = speculating_plan(graph, 0.25);
  const auto device = open(plan);
  Engine engine(*device, graph, plan, options());
  SpikeInputs inputs(graph, half_of_steps);
  for (const LossScale& bad :
       {LossScale{3}, LossScale{0.5}, LossScale{2, LossScale::steps_to_double, 0}, LossScale{2, 0, 1}})
    try {
      engine.step(inputs.of(0), {1e-3, {}, bad});
      ADD_FAILURE() << bad.scale;
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.what(), HasSubstr("give a power of two from 1 to 16777216"));
    }
  EXPECT_EQ(engine.completed_steps(), 0U);
}

}  // namespace
}  // namespace stowage
