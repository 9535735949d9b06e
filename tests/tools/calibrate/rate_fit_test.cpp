#include "tools/calibrate/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace stowage {
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

TEST(FitRates, LeavesOutOpsThatRunAtOtherRates) {
  std::vector<OpTime> times;
  Op op;
  op.cost = {1, 2};
  for (const char* kernel : {"encode", "add", "decode"}) {
    op.kernel = kernel;
    add_time(op, 3, times);
  }
  op.kernel = "adamw";
  op.phase = Phase::update;
  add_time(op, 4, times);
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].cost, op.cost);
  EXPECT_EQ(times[0].seconds, 3);
}

TEST(FitRates, WithoutEvidenceRatesStay) {
  Machine machine;
  const Machine before = machine;
  const FittedRates which = fit_rates({}, machine);
  EXPECT_FALSE(which.arithmetic || which.memory);
  EXPECT_EQ(machine.flops_per_second, before.flops_per_second);
  EXPECT_EQ(machine.device_bytes_per_second, before.device_bytes_per_second);
}

}  // namespace
}  // namespace stowage
