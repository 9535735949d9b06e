#include "samples/report/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/machine.h"

namespace stowage::samples {
namespace {

using testing::HasSubstr;

StepReport report(double loss, double seconds) {
  StepReport result;
  result.loss = loss;
  result.grad_norm = 0.75;
  result.seconds = seconds;
  result.stall_fraction = 0.5;
  result.h2d_bytes = 1'000'000'000;
  result.d2h_bytes = 500'000'000;
  result.device_peak_bytes = 3_MiB;
  return result;
}

TEST(Progress, TheLineTellsTheWindow) {
  Machine machine;
  machine.overhead_bytes = 1_MiB;
  Progress progress({.steps = 100, .tokens_per_step = 1000, .budget = 5_MiB, .machine = machine});
  progress.add(report(9, 1));
  for (int step = 2; step <= 9; ++step) EXPECT_EQ(progress.add(report(3, 0.5)), "");
  const std::string line = progress.add(report(12, 0.5));
  for (const char* part : {"step  10/100", "loss 4.0000", "norm 0.750", "2,000 tok/s", "4.00 MiB/5.00 MiB",
                           "in 2.00 out 1.00 GB/s", "stall 50.0%"}) {
    EXPECT_THAT(line, HasSubstr(part));
  }
  EXPECT_EQ(line.back(), '\n');
}

TEST(Progress, PlainLinesForFewStepsAreAll) {
  Progress progress({.steps = 5, .tokens_per_step = 1, .budget = unlimited});
  for (int step = 0; step < 5; ++step) EXPECT_THAT(progress.add(report(1, 0.01)), HasSubstr("step"));
  EXPECT_EQ(progress.finish(), "");
}

TEST(Progress, PlainLinesComeEveryTenSeconds) {
  Progress progress({.steps = 1000, .tokens_per_step = 1, .budget = unlimited});
  progress.add(report(1, 3));
  EXPECT_EQ(progress.add(report(1, 4)), "");
  EXPECT_EQ(progress.add(report(1, 4)), "");
  EXPECT_THAT(progress.add(report(1, 4)), HasSubstr("step    4/1000"));
  EXPECT_EQ(progress.add(report(1, 4)), "");
}

TEST(Progress, ATerminalsLineIsRewrittenAndFits) {
  Progress progress({.steps = 1000, .tokens_per_step = 1, .budget = unlimited, .columns = 30});
  EXPECT_THAT(progress.add(report(1, 1)), testing::EndsWith("\n"));
  EXPECT_EQ(progress.add(report(1, 0.1)), "");
  const std::string line = progress.add(report(1, 0.2));
  EXPECT_THAT(line, testing::StartsWith("\r\033[Kstep    3/1000"));
  EXPECT_EQ(line.size(), 4 + 29U);
  EXPECT_EQ(progress.finish(), "\n");
  EXPECT_EQ(progress.finish(), "");
}

}  // namespace
}  // namespace stowage::samples
