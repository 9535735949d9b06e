#include "offload/plan/selection.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>

#include "offload/plan/residency.h"
#include "tests/offload/plan/large_graph.h"
#include "tests/offload/plan/placed_greedily.h"

namespace stowage {
namespace {

TEST(Selection, KeepsTheFastestThatFitsAndTheFewestHostBytes) {
  auto plan = [](Bytes device, Bytes host, double seconds) {
    Plan made;
    made.device_peak_bytes = device;
    made.host_bytes = host;
    made.predicted_step_seconds = seconds;
    return made;
  };
  Selection selection({.device = 10, .host = 20});
  selection.offer(plan(11, 1, 1));
  selection.offer(plan(10, 21, 1));
  EXPECT_FALSE(selection.best());
  EXPECT_EQ(selection.least_host(), 21U);
  EXPECT_FALSE(selection.beaten(100));
  selection.offer(plan(9, 20, 3));
  selection.offer(plan(10, 20, 2));
  selection.offer(plan(8, 19, 2));
  ASSERT_TRUE(selection.best());
  EXPECT_EQ(selection.best()->device_peak_bytes, 10U);
  EXPECT_EQ(selection.least_host(), 19U);
  EXPECT_TRUE(selection.beaten(2));
  EXPECT_FALSE(selection.beaten(1.9));
}

// Of `seconds`, with an arena of `percent` of its live bytes.
Plan offered(double seconds, Bytes percent) {
  Plan plan;
  plan.predicted_step_seconds = seconds;
  plan.live_peak_bytes = 1000;
  plan.device_peak_bytes = 10 * percent;
  return plan;
}

TEST(Selection, IsSettledWhereNoPlanThatTakesSoLongWouldBeKept) {
  for (const Bytes percent : {100U, 120U}) {
    Selection selection({unlimited, unlimited});
    EXPECT_FALSE(selection.settled(1e9));
    selection.offer(offered(2, percent));
    for (const double seconds : {1.0, 1.999, 2.0, 2.001, 3.0})
      for (const Bytes of_other : {100U, 120U}) {
        Selection other = selection;
        other.offer(offered(seconds, of_other));
        const bool kept = other.best() != selection.best();
        EXPECT_FALSE(kept && selection.settled(seconds)) << percent << " " << seconds;
      }
    EXPECT_EQ(selection.settled(2), percent == 100) << "one that is tight may take its place";
    EXPECT_TRUE(selection.settled(2.001));
  }
}

// What a selection keeps of these plans, offered one after another.
Plan kept(const std::vector<Plan>& plans, bool large_graph, Bytes budget = unlimited, bool settles = false) {
  Selection selection({budget, unlimited}, large_graph);
  for (const Plan& plan : plans) selection.offer(plan);
  if (settles) selection.settle_for_tight();
  return *selection.best();
}

TEST(Selection, OfALargeGraphATightPlanGoesBeforeOneThatIsHardlyFaster) {
  const Plan tight = offered(1.001, 100), loose = offered(1, 120);
  for (const bool tight_first : {false, true}) {
    const std::vector<Plan> plans = tight_first ? std::vector{tight, loose} : std::vector{loose, tight};
    EXPECT_EQ(kept(plans, true), tight);
    EXPECT_EQ(kept(plans, false), loose);
  }
  const Plan fast = offered(0.998, 120);
  EXPECT_EQ(kept({tight, fast}, true), fast);
  EXPECT_EQ(kept({fast, tight}, true), fast);
}

TEST(Selection, SettlesForATightPlanThatIsNotMuchSlower) {
  const Plan loose = offered(1, 120), tight = offered(1.04, 100);
  Plan wide = tight;
  wide.live_peak_bytes = wide.device_peak_bytes = 1201;
  Plan between = offered(1.03, 119);
  for (const bool settles : {false, true}) {
    EXPECT_EQ(kept({loose, tight}, true, unlimited, settles), settles ? tight : loose);
    EXPECT_EQ(kept({tight, offered(1.02, 100), loose}, true, unlimited, settles),
              settles ? offered(1.02, 100) : loose);
    EXPECT_EQ(kept({loose, offered(1.11, 100)}, true, unlimited, settles), loose) << "much slower";
    EXPECT_EQ(kept({loose, wide}, true, unlimited, settles), loose) << "a larger arena";
    EXPECT_EQ(kept({loose, between, tight}, true, unlimited, settles), loose)
        << "slower than with less memory";
    EXPECT_EQ(kept({loose, tight}, false, unlimited, settles), loose) << "a small graph";
  }
  Selection selection({unlimited, unlimited}, true);
  for (const Plan& plan : {loose, tight}) selection.offer(plan);
  selection.settle_for_tight(1.03);
  EXPECT_EQ(*selection.best(), loose) << "slower than what a smaller budget gets";
  selection.settle_for_tight(1.04);
  EXPECT_TRUE(selection.passed_over());
  selection.keep_fastest();
  EXPECT_EQ(*selection.best(), loose);
}

TEST(Selection, GivesWayToATightPlanWhereItIsTold) {
  const Plan loose = offered(1, 120), tight = offered(1.05, 100);
  for (const bool large_graph : {false, true}) {
    Selection selection({unlimited, unlimited}, large_graph);
    EXPECT_FALSE(selection.is_loose());
    selection.offer(loose);
    EXPECT_EQ(selection.is_loose(), large_graph);
  }
  Selection selection({unlimited, unlimited}, true);
  selection.offer(loose);
  selection.give_way_to(tight);
  EXPECT_FALSE(selection.is_loose());
  EXPECT_EQ(*selection.best(), tight);
  EXPECT_TRUE(selection.passed_over());
  selection.keep_fastest();
  EXPECT_EQ(*selection.best(), loose);
}

TEST(Selection, KeepsTheFastestAfterAllWhereItIsTold) {
  Selection selection({unlimited, unlimited}, true);
  for (const double seconds : {2.0, 1.0005, 1.001}) selection.offer(offered(seconds, 120));
  EXPECT_FALSE(selection.passed_over());
  selection.offer(offered(1.001, 100));
  EXPECT_EQ(*selection.best(), offered(1.001, 100));
  EXPECT_TRUE(selection.passed_over());
  selection.keep_fastest();
  EXPECT_EQ(*selection.best(), offered(1.0005, 120));
  EXPECT_FALSE(selection.passed_over());
  selection.keep_fastest();
  EXPECT_EQ(*selection.best(), offered(1.0005, 120));
}

TEST(Selection, LacksHostWhereAPlanThatFitsTheDeviceNeedsNoMore) {
  Selection selection({.device = 10, .host = 20});
  EXPECT_FALSE(selection.lacks_host(25)) << "none is known";
  Plan plan;
  plan.device_peak_bytes = 11;
  plan.host_bytes = 25;
  selection.offer(plan);
  EXPECT_FALSE(selection.lacks_host(25)) << "none that fits the device";
  plan.device_peak_bytes = 10;
  selection.offer(plan);
  EXPECT_TRUE(selection.lacks_host(25));
  EXPECT_FALSE(selection.lacks_host(24));
  EXPECT_FALSE(selection.lacks_host(20));
}

// Live bytes and arena, and time.
Plan random_plan(std::mt19937& random, double step) {
  Plan plan;
  plan.predicted_step_seconds = 1 + step * static_cast<double>(random() % 60);
  plan.live_peak_bytes = 1000 * (5 + random() % 10);
  plan.device_peak_bytes = plan.live_peak_bytes * (random() % 2 == 0 ? 100 : 105 + random() % 20) / 100;
  return plan;
}

TEST(Selection, OfMorePlansThatFitItKeepsNoneThatIsSlower) {
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::vector<Plan> plans{offered(2, 100)};
    const bool settles = round % 2 == 1;
    for (int i = 0; i < 8; ++i) plans.push_back(random_plan(random, settles ? 2e-3 : 1e-4));
    double before = 3;
    for (Bytes budget = 1000; budget < 20'000; budget += 500) {
      const double seconds = kept(plans, true, budget, settles).predicted_step_seconds;
      ASSERT_LE(seconds, before) << "round " << round << " at " << budget;
      before = seconds;
    }
  }
}

TEST(Selection, KnowsOfTightPlansThatFitWhereAnotherWould) {
  Selection selection({.device = 1100, .host = unlimited}, true);
  selection.offer(offered(1, 100));
  selection.offer(offered(0.5, 106));  // not tight
  selection.offer(offered(0.1, 120));  // does not fit
  EXPECT_TRUE(selection.had_tight(1000, 1));
  EXPECT_FALSE(selection.had_tight(999, 1));
  EXPECT_FALSE(selection.had_tight(2000, 0.999));
  EXPECT_TRUE(selection.had_tight(2000, 2));
}

TEST(Offered, KnowsSchedulesThatAreAlike) {
  Offered offered;
  EXPECT_TRUE(offered.add(7));
  EXPECT_FALSE(offered.add(7));
  const Offered::Alike first{.seconds = 1, .live_bytes = 10'000, .host_bytes = 50};
  EXPECT_FALSE(offered.has_alike(first));
  offered.add(first);
  EXPECT_TRUE(offered.has_alike(first));
  EXPECT_TRUE(offered.has_alike({1 + 9e-7, 10'020, 51}));
  EXPECT_FALSE(offered.has_alike({1 + 2e-6, 10'020, 51})) << "slower";
  EXPECT_FALSE(offered.has_alike({1, 10'021, 51})) << "much more";
  EXPECT_FALSE(offered.has_alike({1, 9'999, 51})) << "fewer bytes";
  EXPECT_FALSE(offered.has_alike({1, 10'020, 49})) << "fewer host bytes";
}

struct Loose {
  Graph graph = testing::large_graph();
  Machine machine = testing::large_graph_machine();
  Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  Draft draft;
  Plan plan;
};
// A plan that is not tight, though there is a tight one.
std::unique_ptr<Loose> loose_plan() {
  auto made = std::make_unique<Loose>();
  for (const Choices& choices : minimum_candidates(made->problem)) {
    const Sketcher sketcher(made->problem, choices);
    for (const Bytes percent : {110U, 150U, 250U}) {
      made->draft = sketcher.within(sketcher.serial_bytes() * percent / 100).draft;
      made->plan = testing::placed_greedily(made->problem, made->draft);
      if (!is_tight(made->plan) && tightened_thoroughly(made->problem, made->draft, made->plan, unlimited))
        return made;
    }
  }
  return nullptr;
}

Offered::Alike alike_of(const Plan& plan) {
  return {plan.predicted_step_seconds, plan.live_peak_bytes, plan.host_bytes};
}

TEST(Offered, KnowsSchedulesThatArePutOff) {
  Offered offered;
  const Offered::Alike first{.seconds = 1, .live_bytes = 10'000, .host_bytes = 50};
  EXPECT_FALSE(offered.has_loose_alike(first));
  offered.add(Offered::Loose{nullptr, {}, {}, first, 0});
  EXPECT_FALSE(offered.has_alike(first));
  EXPECT_TRUE(offered.has_loose_alike({1 + 9e-7, 10'000, 51}));
  EXPECT_FALSE(offered.has_loose_alike({1 + 2e-6, 10'000, 51}));
  EXPECT_FALSE(offered.has_loose_alike({1, 10'001, 51}));
  EXPECT_FALSE(offered.has_loose_alike({1, 10'000, 49}));
}

TEST(Offered, TightensWhatIsLooseAtTheEnd) {
  const auto loose = loose_plan();
  ASSERT_TRUE(loose);
  const Offered::Loose as_offered{&loose->problem, loose->draft, loose->plan, alike_of(loose->plan), 0};
  Offered offered;
  Selection selection({unlimited, unlimited}, true);
  selection.offer(loose->plan);
  offered.add(as_offered);
  offered.tighten_loose(selection);
  EXPECT_TRUE(is_tight(*selection.best()));
  EXPECT_EQ(selection.best()->policy, loose->plan.policy);
  EXPECT_NEAR(selection.best()->predicted_step_seconds, loose->plan.predicted_step_seconds,
              loose->plan.predicted_step_seconds * tightening_change);
}

// Where a search before it found none within as many bytes.
TEST(Offered, SearchesOnceForWhatIsNotThere) {
  const auto loose = loose_plan();
  ASSERT_TRUE(loose);
  const Bytes budget = 2 * loose->plan.device_peak_bytes;
  for (const Bytes before : {Bytes{0}, budget - 1, budget}) {
    Bytes searched = before;
    Offered offered;
    Selection selection({budget, unlimited}, true);
    selection.offer(loose->plan);
    offered.add({&loose->problem, loose->draft, loose->plan, alike_of(loose->plan), 1e-6, false, &searched});
    offered.tighten_loose(selection);
    EXPECT_EQ(is_tight(*selection.best()), before < budget) << before;
    EXPECT_EQ(searched, before) << "it is there";
  }
  // Its time is one that no placement has.
  Plan other = loose->plan;
  other.predicted_step_seconds *= 1.5;
  Bytes searched = 0;
  Offered offered;
  Selection selection({budget, unlimited}, true);
  selection.offer(other);
  offered.add({&loose->problem, loose->draft, other, alike_of(other), 0, false, &searched});
  offered.tighten_loose(selection);
  EXPECT_EQ(searched, budget);
}

TEST(Offered, LowersTheFastestThatIsLoose) {
  Loose loose;
  int lowered = 0;
  for (const Choices& choices : minimum_candidates(loose.problem)) {
    const Sketcher sketcher(loose.problem, choices);
    for (const Bytes percent : {105U, 110U, 120U, 130U, 150U, 170U, 200U, 250U}) {
      loose.draft = sketcher.within(sketcher.serial_bytes() * percent / 100).draft;
      loose.plan = testing::placed_greedily(loose.problem, loose.draft);
      if (is_tight(loose.plan)) continue;
      Offered offered;
      Selection selection({unlimited, unlimited}, true);
      selection.offer(loose.plan);
      offered.add({&loose.problem, loose.draft, loose.plan, alike_of(loose.plan), 0});
      offered.lower_fastest(selection);
      selection.settle_for_tight();
      if (!is_tight(*selection.best())) continue;
      ++lowered;
      EXPECT_LE(selection.best()->device_peak_bytes, loose.plan.device_peak_bytes);
      EXPECT_GE(selection.best()->predicted_step_seconds, loose.plan.predicted_step_seconds);
      EXPECT_LE(selection.best()->predicted_step_seconds,
                loose.plan.predicted_step_seconds * (1 + tightening_loss));
      EXPECT_EQ(selection.best()->policy, loose.plan.policy);
    }
  }
  EXPECT_GT(lowered, 0);
}

// As a larger budget takes a plan that is known to be no faster for none that may be.
TEST(Offered, OffersNoPlanFasterThanTheFamilyLooksFor) {
  const auto loose = loose_plan();
  ASSERT_TRUE(loose);
  Offered offered;
  Selection selection({unlimited, unlimited}, true);
  selection.offer(loose->plan);
  offered.add({&loose->problem, loose->draft, loose->plan, alike_of(loose->plan),
               2 * loose->plan.predicted_step_seconds});
  offered.tighten_loose(selection);
  EXPECT_EQ(*selection.best(), loose->plan);
}

TEST(Offered, LeavesLooseWhatATightPlanStandsFor) {
  const auto loose = loose_plan();
  ASSERT_TRUE(loose);
  const Offered::Loose as_offered{&loose->problem, loose->draft, loose->plan, alike_of(loose->plan), 0};
  Plan stands = loose->plan;  // as good as any that could be found, and of no more bytes
  stands.predicted_step_seconds *= 1 + 0.95 * tightening_change;
  stands.device_peak_bytes = stands.live_peak_bytes;
  Plan large = stands;  // but of more
  large.device_peak_bytes = large.live_peak_bytes = 2 * loose->plan.device_peak_bytes;
  for (const Plan& tight : {stands, large}) {
    Offered offered;
    Selection selection({unlimited, unlimited}, true);
    selection.offer(loose->plan);
    selection.offer(tight);
    offered.add(as_offered);
    offered.tighten_loose(selection);
    EXPECT_EQ(*selection.best() == tight, tight == stands);
    EXPECT_TRUE(is_tight(*selection.best()));
  }
}

}  // namespace
}  // namespace stowage
