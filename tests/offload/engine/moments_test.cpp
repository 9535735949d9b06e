// Moments in fewer bytes than f32 has: no plan, thread count, instruction set or update before the gate
// changes a bit of what they give.
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "kernels/cpu/adamw_simd.h"
#include "src/base/parallel_for.h"
#include "stowage/models.h"
#include "stowage/simulated_device.h"
#include "tests/offload/engine/speculating_gpt.h"
#include "tests/support/quick_plan.h"

namespace stowage {
namespace {

using namespace stowage::testing;

constexpr std::uint64_t few_steps = 24;

class CompactMoments : public ::testing::TestWithParam<std::tuple<Moments, DataType>> {
 protected:
  void TearDown() override {
    set_parallel_threads(0);
    cpu::use_instruction_set("");
  }

  const Graph graph_ = speculating_gpt(spike_clip, std::get<0>(GetParam()), std::get<1>(GetParam()));
  const SpikeInputs inputs_{graph_, half_of_steps};
  const TrainingRun expected_ = evaluate(graph_, inputs_, few_steps);

  std::unique_ptr<SimulatedDevice> open(const Plan& plan) const {
    return open_simulated_device({.capacity = plan.device_peak_bytes, .executor = Executor::virtual_time});
  }
  static EngineOptions options() {
    EngineOptions options;
    options.seed = run_seed;
    options.machine = slow_host();
    return options;
  }
  void expect_expected(const Plan& plan, bool speculate) const {
    const auto device = open(plan);
    Engine engine(*device, graph_, plan, options());
    const SpeculatingRun found = train(engine, graph_, inputs_, few_steps, speculate);
    EXPECT_EQ(found.run.losses, expected_.losses);
    EXPECT_EQ(found.run.norms, expected_.norms);
    EXPECT_TRUE(found.run.values == expected_.values);
    // Some updates stand as they were begun, and some are taken back and made again.
    const auto clipped = std::count_if(found.clip_scales.begin(), found.clip_scales.end(),
                                       [](double scale) { return scale < 1; });
    EXPECT_GT(clipped, 4);
    EXPECT_LT(clipped, 20);
  }
};

TEST_P(CompactMoments, AreOfTheTypeAsked) {
  const DataType type = std::get<0>(GetParam()) == Moments::bf16 ? DataType::bf16 : DataType::u8;
  for (const Tensor& tensor : graph_.tensors) {
    if (tensor.kind != TensorKind::optimizer_state) continue;
    const bool moment = tensor.name.ends_with(".adam_m") || tensor.name.ends_with(".adam_v");
    if (moment) {
      EXPECT_EQ(tensor.type, tensor.shape.size() == 2 ? type : DataType::f32) << tensor.name;
    }
  }
}

TEST_P(CompactMoments, LeaveTheBitsOfTheEvaluatorUnderEveryPlan) {
  int threads = 1;
  for (const Bytes bucket_bytes : {Bytes{0}, 2_KiB})
    for (const double part_of_range : {0.0, 1.0 / 3}) {
      const Plan plan = std::get<1>(GetParam()) == DataType::f16
                            ? plan_with_early_updates(graph_, bucket_bytes)
                            : speculating_plan(graph_, part_of_range, bucket_bytes);
      for (const bool speculate : {false, true}) {
        SCOPED_TRACE(std::to_string(part_of_range) + " of the range, buckets of " +
                     std::to_string(bucket_bytes));
        set_parallel_threads(threads);
        threads = 3 - threads;
        expect_expected(plan, speculate);
      }
    }
}

// There updates are launches.
TEST_P(CompactMoments, LeaveTheBitsOfTheEvaluatorOnTheDevice) {
  expect_expected(std::get<Plan>(quick_plan(graph_, slow_host(), {.device = unlimited})), true);
}

TEST_P(CompactMoments, LeaveTheSameBitsByEveryInstructionSet) {
  const Plan plan = speculating_plan(graph_, 0);
  for (const std::string& set : cpu::instruction_sets()) {
    SCOPED_TRACE(set);
    cpu::use_instruction_set(set);
    expect_expected(plan, true);
  }
}

// A token table in four slices, of which a plan may keep some on the device.
TEST_P(CompactMoments, OfSlicesLeaveTheBitsOfTheEvaluator) {
  GraphBuilder builder(std::get<1>(GetParam()));
  const BuiltModel model =
      gpt(builder, {.layers = 1, .width = 64, .heads = 2, .vocabulary = 1000, .sequence = 8, .batch = 2});
  const Graph graph = builder.finish(
      model.loss,
      AdamW{.moments = std::get<0>(GetParam()),
            .grid = {.slice_bytes = 16_KiB, .most_slices = 4, .least_slices = 2, .least_share = 0.1}});
  ASSERT_EQ(std::count_if(graph.ops.begin(), graph.ops.end(),
                          [](const Op& op) { return op.name.starts_with("wte.weight.adamw.slice"); }),
            4);
  const SpikeInputs inputs(graph, half_of_steps);
  const TrainingRun expected = evaluate(graph, inputs, few_steps);
  const Bytes least = minimum_bytes(graph, slow_host()), need = need_bytes(graph, slow_host());
  for (const Bytes budget : {least, (least + need) / 2, need}) {
    const Plan plan = std::get<Plan>(quick_plan(graph, slow_host(), {.device = budget}));
    const auto device = open(plan);
    Engine engine(*device, graph, plan, options());
    const SpeculatingRun found = train(engine, graph, inputs, few_steps, true);
    EXPECT_EQ(found.run.losses, expected.losses);
    EXPECT_TRUE(found.run.values == expected.values) << "in " << budget << " bytes";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CompactMoments,
                         ::testing::Combine(::testing::Values(Moments::bf16, Moments::eight_bit),
                                            ::testing::Values(DataType::f32, DataType::bf16, DataType::f16)),
                         [](const auto& types) {
                           return std::string(to_string(std::get<0>(types.param))) + "_of_" +
                                  std::string(to_string(std::get<1>(types.param)));
                         });

}  // namespace
}  // namespace stowage
