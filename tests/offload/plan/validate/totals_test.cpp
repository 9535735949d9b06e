#include "offload/plan/validate/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/planner.h"
#include "tests/offload/plan/validate/made_plans.h"
#include "tests/offload/plan/validate/small_plans.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;

std::string findings(const Plan& plan, const Budget& budget = {}) {
  return testing::joined(validate(testing::small_graph(), plan, budget));
}

TEST(Totals, BudgetsHoldToTheByte) {
  const Plan plan = testing::small_streamed_plan();
  EXPECT_EQ(findings(plan, {1280, 1376}), "");
  EXPECT_THAT(findings(plan, {1279, 1376}),
              HasSubstr("the arena takes 1280 bytes, the device budget is 1279"));
  EXPECT_THAT(
      findings(plan, {1280, 1375}),
      HasSubstr("the host buckets, gradient ring and undo records take 1376 bytes, the host budget is 1375"));
}

TEST(Totals, ABudgetIsHeldByTheArenaNotByWhatThePlanDeclares) {
  Plan plan = testing::small_streamed_plan();
  plan.device_peak_bytes = 1024;
  EXPECT_THAT(findings(plan, {1279, unlimited}), HasSubstr("the device budget is 1279"));
}

TEST(Totals, EveryDeclaredNumberIsTheRealOne) {
  const std::pair<Bytes Plan::*, const char*> declared[] = {
      {&Plan::device_peak_bytes, "device_peak_bytes 1281, but it is 1280"},
      {&Plan::live_peak_bytes, "live_peak_bytes 1033, but it is 1032"},
      {&Plan::host_bytes, "host_bytes 1377, but it is 1376"},
      {&Plan::pinned_bytes, "pinned_bytes 849, but it is 848"},
      {&Plan::h2d_bytes, "h2d_bytes 833, but it is 832"},
      {&Plan::d2h_bytes, "d2h_bytes 529, but it is 528"}};
  for (const auto& [member, words] : declared) {
    Plan plan = testing::small_streamed_plan();
    plan.*member += 1;
    EXPECT_EQ(findings(plan), "the plan declares " + std::string(words) + "\n");
  }
}

TEST(Totals, MadePlansDeclareTheirRealNumbers) {
  testing::for_each_made_plan(5000, 5020, [](const testing::MadePlan& made) {
    Plan settled = made.plan;
    testing::settle_totals(settled);
    EXPECT_EQ(settled, made.plan) << made.name;
    const Budget tight{made.plan.device_peak_bytes - 1, unlimited};
    EXPECT_THAT(testing::joined(validate(made.graph, made.plan, tight)), HasSubstr("device budget"))
        << made.name;
  });
}

}  // namespace
}  // namespace stowage
