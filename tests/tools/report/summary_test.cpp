#include "tools/report/report_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stowage::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Plan plan_of(Bytes peak, Bytes host) {
  Plan plan;
  plan.device_peak_bytes = peak;
  plan.live_peak_bytes = peak / 2;
  plan.host_bytes = host;
  plan.pinned_bytes = 3_KiB;
  plan.h2d_bytes = 5_MiB;
  plan.d2h_bytes = 7_MiB;
  plan.predicted_step_seconds = 0.3;
  plan.lower_bound_seconds = 0.2;
  plan.bound_by = "h2d";
  return plan;
}

TEST(SecondsText, ForPeople) {
  EXPECT_EQ(seconds_text(0), "0 s");
  EXPECT_EQ(seconds_text(12.345e-6), "12.3 µs");
  EXPECT_EQ(seconds_text(0.24571), "245.7 ms");
  EXPECT_EQ(seconds_text(61.5), "61.5 s");
}

TEST(Verdict, CountsTheOverheadAgainstTheDeviceBudget) {
  Machine machine;
  machine.overhead_bytes = 1_MiB;
  const Plan plan = plan_of(4_MiB, 1_MiB);
  EXPECT_THAT(verdict_html(plan, machine, {}), HasSubstr("fits</span> without a device budget"));
  EXPECT_THAT(verdict_html(plan, machine, {.device = 5_MiB}), HasSubstr("fits</span> in 5.00 MiB"));
  EXPECT_THAT(verdict_html(plan, machine, {.device = 5_MiB - 1}),
              HasSubstr("does not fit</span> the device"));
  EXPECT_THAT(verdict_html(plan, machine, {.host = 1_MiB - 1}), HasSubstr("does not fit</span> the host"));
}

TEST(Facts, NameEveryNumberOfThePlan) {
  Machine machine;
  machine.overhead_bytes = 2_MiB;
  machine.h2d = {32e9, 7e-6};
  const ReportOptions options{.machine_name = "a <machine>", .budget = {.device = 10_MiB, .host = 9_MiB}};
  const std::string html =
      facts_html(plan_of(4_MiB, 6_MiB), {.instructions = {}, .step_seconds = 0.3, .stall_seconds = 0.05},
                 machine, options);
  for (const char* text :
       {"10.00 MiB", "2.00 MiB", "4.00 MiB <small>50.0% of the rest", "100.0% lost to gaps",
        "6.00 MiB <small>of 9.00 MiB", "3.00 KiB", "5.00 MiB <small>h2d", "7.00 MiB <small>d2h", "300 ms",
        "200 ms <small>h2d binds", "1.50 × bound", "+ 100 ms", "50 ms", "a &lt;machine&gt;",
        "32 GB/s <small>+ 7 µs each"}) {
    EXPECT_THAT(html, HasSubstr(text));
  }
  EXPECT_THAT(html, Not(HasSubstr("on this machine")));
}

TEST(Facts, SayWhatComesFromPeersWhereThereAreAny) {
  Machine machine;
  machine.peer = {20e9, 1e-5, true};
  EXPECT_THAT(facts_html(plan_of(4_MiB, 0), {}, machine, {}, 11_MiB),
              HasSubstr("from peers per step</dt><dd>11.00 MiB <small>at up to 20 GB/s"));
  EXPECT_THAT(facts_html(plan_of(4_MiB, 0), {}, machine, {}), Not(HasSubstr("peers")));
}

TEST(Facts, SayWhenAnotherMachineTakesAnotherTime) {
  EXPECT_THAT(
      facts_html(plan_of(4_MiB, 0), {.instructions = {}, .step_seconds = 0.4, .stall_seconds = 0}, {}, {}),
      HasSubstr("on this machine</dt><dd>400 ms"));
}

TEST(Facts, OfAnEmptyPlanDivideByNothing) {
  const std::string html = facts_html({}, {}, {}, {.budget = {.device = 0}});
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace stowage::report
