#include "samples/calibrate_quick.h"

#include <gtest/gtest.h>

#include <vector>

#include "samples/bert_task.h"
#include "samples/gpt_task.h"

namespace stowage::samples {
namespace {

TEST(FitRates, FindsTheRatesThatMadeTheTimes) {
  // 50 Gflop/s and 2 GB/s, far from the defaults that the fit starts from.
  Machine truth;
  truth.flops_per_second = 50e9;
  truth.device_bytes_per_second = 2e9;
  std::vector<OpTime> times;
  for (const OpCost cost : {OpCost{1e9, 1e6}, OpCost{4e9, 8e6}, OpCost{1e6, 1e8}, OpCost{5e7, 3e8}}) {
    const double seconds =
        std::max(cost.flops / truth.flops_per_second, cost.bytes / truth.device_bytes_per_second);
    times.push_back({cost, seconds + truth.launch_seconds});
  }
  Machine fitted;
  const FittedRates which = fit_rates(times, fitted);
  EXPECT_TRUE(which.arithmetic && which.memory);
  EXPECT_NEAR(fitted.flops_per_second, 50e9, 50);
  EXPECT_NEAR(fitted.device_bytes_per_second, 2e9, 2);
}

TEST(FitRates, WithoutEvidenceRatesStay) {
  Machine machine;
  const Machine before = machine;
  const FittedRates which = fit_rates({}, machine);
  EXPECT_FALSE(which.arithmetic || which.memory);
  EXPECT_EQ(machine.flops_per_second, before.flops_per_second);
  EXPECT_EQ(machine.device_bytes_per_second, before.device_bytes_per_second);
}

TEST(CalibrateQuick, GivesPositiveRatesAndTheLink) {
  const Link link{.bytes_per_second = 123, .latency_seconds = 4, .throttled = true};
  struct Case {
    BuildModel build;
    std::int64_t width;
  };
  for (const auto& [build, width] : {Case{build_gpt, 8}, Case{build_gpt, 3072}, Case{build_bert, 8}}) {
    const Calibration calibration = calibrate_quick(
        build, {.layers = 3, .width = width, .heads = 1, .sequence = 4, .batch = 2}, {}, link);
    const Machine& machine = calibration.machine;
    EXPECT_GT(machine.flops_per_second, 0);
    EXPECT_GT(machine.device_bytes_per_second, 0);
    EXPECT_GT(machine.host_bytes_per_second, 0);
    EXPECT_FALSE(calibration.profile.empty());
    EXPECT_EQ(machine.compute_beside_copy, 1) << "a link that hardly copies";
    for (const double kept : {machine.compute_beside_host, machine.host_beside_compute}) {
      EXPECT_GT(kept, 0);
      EXPECT_LE(kept, 1);
    }
    EXPECT_EQ(machine.h2d.bytes_per_second, 123);
    EXPECT_EQ(machine.d2h.latency_seconds, 4);
  }
}

}  // namespace
}  // namespace stowage::samples
