#include "samples/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/literal_plan.h"

namespace stowage::samples {
namespace {

using testing::HasSubstr;

StepReport step_report(std::uint64_t step, double loss, double seconds) {
  StepReport report;
  report.step = step;
  report.loss = loss;
  report.seconds = seconds;
  report.stall_fraction = 0.25;
  report.device_peak_bytes = 900;
  return report;
}

TEST(RunStatistics, MeansOfTheLast20AndOfTheSteadyState) {
  RunStatistics run;
  EXPECT_TRUE(std::isnan(run.last_mean_loss()));
  run.add(step_report(0, 100, 5));
  EXPECT_EQ(run.last_mean_loss(), 100);
  EXPECT_EQ(run.step_seconds(), 5);
  run.add(step_report(1, 100, 5));
  for (std::uint64_t step = 2; step < 22; ++step) run.add(step_report(step, static_cast<double>(step), 1));
  EXPECT_EQ(run.last_losses(), 20U);
  EXPECT_EQ(run.last_mean_loss(), 11.5);  // 2 … 21
  EXPECT_EQ(run.seconds(), 30);
  EXPECT_EQ(run.step_seconds(), 1);  // the first two are start-up
  EXPECT_EQ(run.stall_fraction(), 0.25);
  EXPECT_EQ(run.device_peak_bytes(), 900U);
}

struct Told {
  test::LiteralPlan literal;
  Options options;
  Setup setup;

  Told() {
    options.data = "bible.txt";
    options.budget.device = 1000;
    setup.options = &options;
    setup.graph = setup.model = &literal.graph;
    setup.plan = &literal.plan;
    setup.data = {.text = "bible.txt: 4,404,412 bytes, entropy 2.3125 nats",
                  .unit = "bytes",
                  .yardstick = Yardstick{"entropy", 2.3125, "it sees further", "one byte would do"},
                  .loss_of = {}};
    setup.need = 5000;
    setup.minimum = 800;
    setup.peak = 900;
    setup.device = "simulated: no card";
  }
};

TEST(SetupTable, TellsTheIssue) {
  const Told told;
  const std::string table = setup_table(told.setup);
  for (const char* part :
       {"60 parameters", "2,048 tokens", "bible.txt: 4,404,412 bytes", "2.3125 nats", "(5000 bytes)",
        "(800 bytes), 16.0% of the need", "(1000 bytes), 20.0% of the need", "simulated: no card",
        "1 (40 B) buckets resident, 1 (80 B) held, 1 (120 B) streamed",
        "1 (400 B) kept, 1 (800 B) recomputed, 1 (1.17 KiB) offloaded", "2.00 KiB in, 1.00 KiB out",
        "500.0 ms per step, 4,096 tokens/s", "400.0 ms per step", "bound by h2d"}) {
    EXPECT_THAT(table, HasSubstr(part));
  }
}

TEST(SetupTable, TellsWhatNoPlanCanUse) {
  Told told;
  EXPECT_THAT(setup_table(told.setup), testing::Not(HasSubstr("libraries")));
  told.setup.machine.overhead_bytes = 2048;
  EXPECT_THAT(setup_table(told.setup), HasSubstr("2.00 KiB (2048 bytes) for context and libraries"));
  // What a run touches is told as a budget, too.
  told.setup.peak = 2948;
  RunStatistics run;
  run.add(step_report(0, 2.0, 0.4));
  EXPECT_THAT(setup_table(told.setup), HasSubstr("peak 2.88 KiB (2948 bytes), 59.0% of the need"));
  EXPECT_THAT(summary(told.setup, run),
              HasSubstr("2948 bytes touched, 2948 planned, budget 1000 bytes; 59.0% of the need"));
}

TEST(SetupTable, ShowsThatAnotherSystemIsEmulated) {
  Told told;
  EXPECT_THAT(setup_table(told.setup), testing::Not(HasSubstr("policy")));
  told.options.plan.policy = Policy::layer_stream;
  told.literal.plan.policy = "layer-stream";
  EXPECT_THAT(setup_table(told.setup), HasSubstr("layer-stream (emulated)"));
}

TEST(SetupTable, SaysWhetherTheMachineWasMeasuredNow) {
  Told told;
  EXPECT_THAT(setup_table(told.setup), HasSubstr("calibrated"));
  EXPECT_THAT(setup_table(told.setup), testing::Not(HasSubstr("assumed")));
  told.setup.fitted.arithmetic = false;
  EXPECT_THAT(setup_table(told.setup), HasSubstr("GFLOP/s in matrices (assumed"));
  told.options.machine = "h.json";
  EXPECT_THAT(setup_table(told.setup), testing::Not(HasSubstr("calibrated")));
}

TEST(SetupTable, SaysWhoseTimesThePredictionHas) {
  Told told;
  EXPECT_THAT(setup_table(told.setup), testing::Not(HasSubstr("not on that machine")));
  EXPECT_THAT(summary(told.setup, {}), testing::Not(HasSubstr("not on that machine")));
  told.setup.planned_for = "a card on a node";
  for (const std::string& text : {setup_table(told.setup), summary(told.setup, {})})
    EXPECT_THAT(text, HasSubstr("  for         a card on a node; this run is not on that machine"));
}

TEST(Summary, ComparesWithThePromises) {
  Told told;
  told.setup.start = {.device = 1.5, .plan = 0.25, .engine = 3, .pinning = 2};
  RunStatistics run;
  for (std::uint64_t step = 0; step < 10; ++step) run.add(step_report(step, 2.0, 0.4));
  const std::string text = summary(told.setup, run);
  for (const char* part :
       {"2.0000 nats, mean of the last 10 steps", "entropy 2.3125", "further",
        "1.50 s for the device, 250.0 ms to plan, 3.00 s for memory (2.00 s of it to pin) and weights",
        "10 in 4.00 s", "5,120 tokens/s", "400.0 ms", "predicted 500.0 ms (+25.0%)",
        "1.00x the lower bound (h2d)", "stall       measured 25.0%, planned ",
        "900 bytes touched, 900 planned, budget 1000 bytes"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Summary, DeadAttentionCannotPass) {
  const Told told;
  RunStatistics run;
  for (std::uint64_t step = 0; step < 10; ++step) run.add(step_report(step, 2.32, 0.4));
  EXPECT_THAT(summary(told.setup, run), testing::Not(HasSubstr("further")));
  EXPECT_THAT(summary(told.setup, run), HasSubstr("one byte would do"));
}

TEST(Summary, OfALossWithPartsSaysWhichTheseAre) {
  Told told;
  told.setup.data.yardstick = {};
  told.setup.data.loss_of = "this and that";
  RunStatistics run;
  run.add(step_report(0, 2.0, 0.4));
  EXPECT_THAT(summary(told.setup, run), HasSubstr("last 1 steps; this and that\n"));
}

TEST(Summary, TellsHowAttentionWasComputedOnACard) {
  const Told told;
  RunStatistics run;
  run.add(step_report(0, 2, 1));
  EXPECT_EQ(summary(told.setup, run).find("attention"), std::string::npos);
  run.add(AttentionUse{1000, 2, 0, {}});
  run.add(AttentionUse{1000, 3, 0, {"a shape: why"}});
  const std::string text = summary(told.setup, run);
  EXPECT_THAT(text,
              HasSubstr("2,000 launches of cuDNN, 5 of our own kernels for 16 bits, 0 of those for f32"));
  EXPECT_THAT(text, HasSubstr("a shape: why"));
  EXPECT_EQ(attention_methods(run.attention()), "cudnn+own");
  EXPECT_EQ(attention_methods({0, 0, 7, {}}), "plain");
  EXPECT_EQ(attention_methods({}), "");
}

TEST(InfeasibleMessage, NamesOptionBytesAndOp) {
  Infeasible infeasible{.budget = 999, .minimum = 1048576, .host = false, .op = "h.3.attention"};
  const std::string device = infeasible_message(infeasible, Policy::automatic);
  for (const char* part :
       {"--device-memory 999", "1048576 bytes (1.00 MiB)", "h.3.attention", "--device-memory 1048576"}) {
    EXPECT_THAT(device, HasSubstr(part));
  }
  infeasible.host = true;
  EXPECT_THAT(infeasible_message(infeasible, Policy::automatic), HasSubstr("--host-memory 999"));
  EXPECT_THAT(infeasible_message(infeasible, Policy::automatic), HasSubstr("that works is 1048576 bytes"));
  infeasible.at_most = true;
  EXPECT_THAT(infeasible_message(infeasible, Policy::automatic),
              HasSubstr("that works is at most 1048576 bytes"));
  EXPECT_THAT(infeasible_message(infeasible, Policy::none), HasSubstr("--policy none"));
  EXPECT_THAT(infeasible_message(infeasible, Policy::zero_offload), HasSubstr("--policy zero-offload"));
}

}  // namespace
}  // namespace stowage::samples
