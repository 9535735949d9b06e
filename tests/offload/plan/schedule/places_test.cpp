#include "offload/plan/schedule/places.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/candidate.h"
#include "tests/offload/plan/large_graph.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

constexpr std::uint64_t graphs = testing::draws<std::uint64_t>(25, 6);

enum class Transfers { one_by_one, ahead };

// Calls `look` with drafts of random graphs and of a GPT.
template <typename Look>
void each_draft(Transfers transfers, Look&& look, std::uint64_t most_graphs = graphs) {
  const auto of = [&](const Graph& graph, const Machine& machine) {
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    for (const Choices& choices : minimum_candidates(problem)) {
      const Sketcher sketcher(problem, choices);
      look(problem, transfers == Transfers::ahead ? sketcher.within(sketcher.serial_bytes() * 3 / 2, 0)
                                                  : sketcher.serial());
    }
  };
  for (std::uint64_t seed = 0; seed < most_graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    of(testing::random_graph(seed), testing::any_machine(seed));
  }
  of(testing::large_graph(), testing::large_graph_machine());
}

void expect_same_lifetimes(const Plan& plan, const Draft& draft) {
  ASSERT_EQ(plan.lifetimes.size(), draft.lifetimes.size());
  for (LifetimeId id = 0; id < draft.lifetimes.size(); ++id) {
    EXPECT_EQ(plan.lifetimes[id].bucket, draft.lifetimes[id].bucket);
    EXPECT_EQ(plan.lifetimes[id].first, draft.lifetimes[id].first);
    EXPECT_EQ(plan.lifetimes[id].last, draft.lifetimes[id].last);
  }
}

TEST(PlacedWithin, MakesValidPlansThatKeepTheCapacityAndTheDraft) {
  int placed = 0, tried = 0;
  each_draft(Transfers::ahead, [&](const Problem& problem, const Sketch& sketch) {
    for (const Bytes percent : {100U, 102U, 110U, 200U}) {
      const Bytes capacity = sketch.live_peak_bytes * percent / 100;
      const auto plan = placed_within(problem, sketch.draft, capacity, {});
      ++tried;
      if (percent == 200) {
        EXPECT_TRUE(plan);
      }
      if (!plan) continue;
      ++placed;
      EXPECT_LE(plan->device_peak_bytes, capacity);
      EXPECT_TRUE(validate(*problem.graph, *plan, {capacity, unlimited}).empty());
      expect_same_lifetimes(*plan, sketch.draft);
    }
  });
  EXPECT_GT(placed, tried * 2 / 3);
}

// Where there is room, transfers seldom wait for what was at their places before.
TEST(PlacedWithin, PlacesAreFreeBeforeTransfersNeedThem) {
  PlannerSettings low;
  low.place_leads = {};
  double seconds = 0, seconds_of_low = 0;
  int faster = 0, slower = 0;
  const auto compare = [&](const Problem& problem, const Sketch& sketch) {
    for (const Bytes percent : {105U, 150U}) {
      const Bytes capacity = sketch.live_peak_bytes * percent / 100;
      const auto plan = placed_within(problem, sketch.draft, capacity, {});
      const auto of_low = placed_within(problem, sketch.draft, capacity, low);
      ASSERT_EQ(plan.has_value(), of_low.has_value());
      if (!plan) continue;
      for (LifetimeId id = 0; id < plan->lifetimes.size(); ++id)
        if (sketch.draft.lifetimes[id].resident) {
          EXPECT_EQ(plan->lifetimes[id].offset, of_low->lifetimes[id].offset);
        }
      seconds += plan->predicted_step_seconds;
      seconds_of_low += of_low->predicted_step_seconds;
      const double ratio = plan->predicted_step_seconds / of_low->predicted_step_seconds;
      faster += ratio < 1 - 1e-9;
      slower += ratio > 1 + 1e-9;
    }
  };
  each_draft(Transfers::ahead, compare, 25);
  EXPECT_LT(seconds, seconds_of_low);
  EXPECT_GT(faster, 10 * slower);
}

TEST(PlacedWithin, FindsNothingBelowTheLiveBytes) {
  each_draft(Transfers::ahead, [&](const Problem& problem, const Sketch& sketch) {
    EXPECT_FALSE(placed_within(problem, sketch.draft, sketch.live_peak_bytes - 1, {}));
  });
}

// In units of the alignment.
Bytes aligned_live_bytes(const Plan& plan) {
  std::vector<std::pair<Position, std::int64_t>> changes;
  for (const Lifetime& lifetime : plan.lifetimes) {
    const auto bytes =
        static_cast<std::int64_t>(align_up(plan.buckets[lifetime.bucket].bytes, plan.alignment));
    changes.insert(changes.end(), {{lifetime.first, bytes}, {lifetime.last, -bytes}});
  }
  std::sort(changes.begin(), changes.end());
  std::int64_t live = 0, most = 0;
  for (const auto& [position, bytes] : changes) most = std::max(most, live += bytes);
  return static_cast<Bytes>(most);
}

TEST(PlacedLow, ArenasAreWithinAHundredthOfWhatIsLive) {
  each_draft(Transfers::one_by_one, [&](const Problem& problem, const Sketch& sketch) {
    const Plan plan = placed_low(problem, sketch.draft);
    EXPECT_LE(plan.device_peak_bytes, aligned_live_bytes(plan) * 101 / 100);
    EXPECT_TRUE(validate(*problem.graph, plan, {plan.device_peak_bytes, unlimited}).empty());
    expect_same_lifetimes(plan, sketch.draft);
  });
}

}  // namespace
}  // namespace stowage
