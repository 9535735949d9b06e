#include "tools/cli/plan_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Bucket bucket(const std::string& name, TensorKind kind, Residency residency, std::vector<TensorId> tensors) {
  Bucket made;
  made.name = name;
  made.kind = kind;
  made.residency = residency;
  made.bytes = 1024 * tensors.size();
  for (const TensorId id : tensors) made.tensors.push_back({id, 0});
  return made;
}

// Parameters 0, 1 and 2, activation 3.
Plan plan_a() {
  Plan plan;
  plan.buckets = {bucket("w0", TensorKind::parameter, Residency::resident, {0}),
                  bucket("w1+w2", TensorKind::parameter, Residency::streamed, {1, 2}),
                  bucket("x", TensorKind::activation, Residency::transient, {3})};
  plan.device_peak_bytes = 4096;
  plan.host_bytes = 1000;
  plan.h2d_bytes = 100;
  plan.predicted_step_seconds = 0.5;
  plan.lower_bound_seconds = 0.4;
  plan.bound_by = "compute";
  return plan;
}

Plan plan_b() {
  Plan plan = plan_a();
  plan.buckets[0].residency = Residency::held;
  plan.buckets[1].tensors = {{2, 0}, {1, 0}};  // the order inside does not matter
  plan.buckets[2].residency = Residency::recomputed;
  plan.device_peak_bytes = 2048;
  plan.predicted_step_seconds = 0.6;
  plan.h2d_bytes = 0;
  plan.bound_by = "h2d";
  return plan;
}

TEST(PlanCompare, FindsWhoseResidencyDiffers) {
  const PlanComparison found = compare(plan_a(), plan_b());
  ASSERT_EQ(found.differences.size(), 2U);
  EXPECT_EQ(found.differences[0].name, "w0");
  EXPECT_EQ(found.differences[0].bytes, 1024U);
  EXPECT_EQ(found.differences[0].a, Residency::resident);
  EXPECT_EQ(found.differences[0].b, Residency::held);
  EXPECT_EQ(found.differences[1].name, "x");
  EXPECT_EQ(found.differences[1].kind, TensorKind::activation);
  EXPECT_EQ(found.only_a, 0U);
  EXPECT_EQ(found.a.at({TensorKind::parameter, Residency::resident}), 1U);
  EXPECT_FALSE(found.b.contains({TensorKind::parameter, Residency::resident}));
  EXPECT_EQ(found.b.at({TensorKind::parameter, Residency::streamed}), 1U);
}

TEST(PlanCompare, CountsBucketsThatAreGroupedOtherwise) {
  Plan b = plan_b();
  b.buckets[1].tensors.pop_back();
  b.buckets.push_back(bucket("w1", TensorKind::parameter, Residency::streamed, {1}));
  const PlanComparison found = compare(plan_a(), b);
  EXPECT_EQ(found.differences.size(), 2U);
  EXPECT_EQ(found.only_a, 1U);
  EXPECT_EQ(found.only_b, 2U);
  EXPECT_THAT(describe(plan_a(), b, found), HasSubstr("grouped       otherwise: 1 buckets of A, 2 of B\n"));
}

TEST(PlanCompare, PutsTheAccountsSideBySide) {
  const std::string text = describe(plan_a(), plan_b(), compare(plan_a(), plan_b()));
  for (const char* part :
       {"peak                4.00 KiB       2.00 KiB     -50.0%\n",
        "host                  1000 B         1000 B   the same\n",
        "in                     100 B            0 B    -100.0%\n",
        "out                      0 B            0 B   the same\n",
        "step                500.0 ms       600.0 ms     +20.0%\n",
        "  by                 compute            h2d\n", "  gap                  25.0%          50.0%\n",
        "buckets       parameter, held                   0      1\n", "resident in A, held in B\n",
        "transient in A, recomputed in B\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("grouped")));
}

TEST(PlanCompare, ShowsTwentyAndSaysHowManyMore) {
  Plan a;
  for (TensorId id = 0; id < 25; ++id)
    a.buckets.push_back(bucket("w" + std::to_string(id), TensorKind::parameter, Residency::resident, {id}));
  Plan b = a;
  EXPECT_THAT(describe(a, b, compare(a, b)), HasSubstr("differs       no bucket that both have\n"));
  for (Bucket& each : b.buckets) each.residency = Residency::held;
  const std::string text = describe(a, b, compare(a, b));
  EXPECT_THAT(text, HasSubstr("w19 "));
  EXPECT_THAT(text, Not(HasSubstr("w20 ")));
  EXPECT_THAT(text, HasSubstr("and 5 more\n"));
  b.buckets.front().residency = Residency::resident;
  EXPECT_EQ(to_json(a, b, compare(a, b))["differences"].size(), 24U);
}

TEST(PlanCompare, AsJsonHoldsBothAccounts) {
  const auto json = to_json(plan_a(), plan_b(), compare(plan_a(), plan_b()));
  EXPECT_EQ(json["a"]["device_peak_bytes"], 4096);
  EXPECT_EQ(json["b"]["device_peak_bytes"], 2048);
  EXPECT_EQ(json["b"]["bound_by"], "h2d");
  EXPECT_EQ(json["differences"][0]["bucket"], "w0");
  EXPECT_EQ(json["differences"][0]["b"], "held");
  EXPECT_EQ(json["buckets"][0]["kind"], "parameter");
  EXPECT_EQ(json["only_a"], 0);
}

TEST(PlanCompare, RefusesPlansOfDifferentGraphs) {
  Plan b = plan_b();
  b.buckets.pop_back();
  test::expect_refused([&] { compare(plan_a(), b); }, "the two plans do not hold the same tensors");
  b = plan_b();
  b.buckets[2].kind = TensorKind::gradient;
  test::expect_refused([&] { compare(plan_a(), b); }, "give plans of the same graph");
}

}  // namespace
}  // namespace stowage
