#include "samples/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace stowage::samples {
namespace {

using testing::HasSubstr;

TEST(Grouped, Thousands) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(1234567), "1,234,567");
}

TEST(FormatSeconds, ForPeople) {
  EXPECT_EQ(format_seconds(12.34e-6), "12.3 us");
  EXPECT_EQ(format_seconds(0.4125), "412.5 ms");
  EXPECT_EQ(format_seconds(2.5), "2.50 s");
  EXPECT_EQ(format_seconds(245.2), "4 min 05 s");
}

// One activation of each fate, a parameter bucket of each residency.
struct Literal {
  Graph graph;
  Plan plan;

  Literal() {
    const auto tensor = [&](const char* name, TensorKind kind, std::int64_t elements) {
      Tensor result;
      result.name = name;
      result.kind = kind;
      result.shape = {elements};
      graph.tensors.push_back(result);
    };
    tensor("w0", TensorKind::parameter, 10);
    tensor("w1", TensorKind::parameter, 20);
    tensor("w2", TensorKind::parameter, 30);
    tensor("m0", TensorKind::optimizer_state, 10);
    tensor("kept", TensorKind::activation, 100);
    tensor("again", TensorKind::activation, 200);
    tensor("away", TensorKind::activation, 300);
    tensor("short", TensorKind::activation, 400);
    graph.ops.resize(2);
    graph.ops[0].writes = {4, 5, 6, 7};
    graph.ops[1].phase = Phase::backward;
    graph.ops[1].reads = {4, 5, 6};
    const auto bucket = [&](Residency residency, TensorId id) {
      Bucket result;
      result.kind = graph.tensor(id).kind;
      result.residency = residency;
      result.bytes = graph.tensor(id).bytes();
      result.tensors = {{id, 0}};
      plan.buckets.push_back(result);
    };
    bucket(Residency::resident, 0);
    bucket(Residency::held, 1);
    bucket(Residency::streamed, 2);
    bucket(Residency::host, 3);
    bucket(Residency::transient, 4);
    bucket(Residency::recomputed, 5);
    bucket(Residency::offloaded, 6);
    bucket(Residency::transient, 7);
    plan.device_peak_bytes = 900;
    plan.h2d_bytes = 2048;
    plan.d2h_bytes = 1024;
    plan.predicted_step_seconds = 0.5;
    plan.lower_bound_seconds = 0.4;
    plan.bound_by = "h2d";
  }
};

TEST(Tally, CountsEachFate) {
  const Literal literal;
  const PlanTally where = tally(literal.graph, literal.plan);
  EXPECT_EQ(where.resident.bytes, 40U);
  EXPECT_EQ(where.held.bytes, 80U);
  EXPECT_EQ(where.streamed.bytes, 120U);
  EXPECT_EQ(where.optimizer_host.count, 1U);
  EXPECT_EQ(where.optimizer_device.count, 0U);
  EXPECT_EQ(where.kept.count, 1U);
  EXPECT_EQ(where.kept.bytes, 400U);
  EXPECT_EQ(where.recomputed.bytes, 800U);
  EXPECT_EQ(where.offloaded.bytes, 1200U);
}

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
  Literal literal;
  Options options;
  Setup setup;

  Told() {
    options.data = "bible.txt";
    options.budget.device = 1000;
    setup.options = &options;
    setup.graph = &literal.graph;
    setup.plan = &literal.plan;
    setup.text_bytes = 4404412;
    setup.bigram_entropy = 2.3125;
    setup.need = 5000;
    setup.minimum = 800;
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
}

TEST(SetupTable, SaysWhetherTheMachineWasMeasuredNow) {
  Told told;
  EXPECT_THAT(setup_table(told.setup), HasSubstr("calibrated"));
  told.options.machine_file = "h.json";
  EXPECT_THAT(setup_table(told.setup), testing::Not(HasSubstr("calibrated")));
}

TEST(Summary, ComparesWithThePromises) {
  const Told told;
  RunStatistics run;
  for (std::uint64_t step = 0; step < 10; ++step) run.add(step_report(step, 2.0, 0.4));
  const std::string text = summary(told.setup, run);
  for (const char* part :
       {"2.0000 nats, mean of the last 10 steps", "entropy 2.3125", "further", "10 in 4.00 s",
        "5,120 tokens/s", "400.0 ms", "predicted 500.0 ms (+25.0%)", "1.00x the lower bound (h2d)",
        "stall 25.0%", "900 bytes touched, 900 planned, budget 1000 bytes"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Summary, DeadAttentionCannotPass) {
  const Told told;
  RunStatistics run;
  for (std::uint64_t step = 0; step < 10; ++step) run.add(step_report(step, 2.32, 0.4));
  EXPECT_THAT(summary(told.setup, run), testing::Not(HasSubstr("further")));
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
  EXPECT_THAT(infeasible_message(infeasible, Policy::none), HasSubstr("--policy none"));
}

}  // namespace
}  // namespace stowage::samples
