#include "offload/plan/arena.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "offload/plan/extreme_choices.h"
#include "tests/offload/plan/large_graph.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

constexpr std::uint64_t graphs = testing::draws<std::uint64_t>(25, 6);

enum class Transfers { one_by_one, ahead };

// Calls `look` with drafts of random graphs and of a GPT.
template <typename Look>
void each_draft(Transfers transfers, Look&& look) {
  const auto of = [&](const Graph& graph, const Machine& machine) {
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    for (const Choices& choices : minimum_candidates(problem)) {
      const Sketcher sketcher(problem, choices);
      look(problem, transfers == Transfers::ahead ? sketcher.within(sketcher.serial_bytes() * 3 / 2, 0)
                                                  : sketcher.serial());
    }
  };
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
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

TEST(PlacedWithin, FindsNothingBelowTheLiveBytes) {
  each_draft(Transfers::ahead, [&](const Problem& problem, const Sketch& sketch) {
    EXPECT_FALSE(placed_within(problem, sketch.draft, sketch.live_peak_bytes - 1, {}));
  });
}

// The search may find places where the usual placement finds none, and loses none that it finds.
TEST(PlacedWithin, TheSearchAddsToTheUsualPlacement) {
  int usual = 0, with_search = 0;
  each_draft(Transfers::ahead, [&](const Problem& problem, const Sketch& sketch) {
    const Bytes capacity = sketch.live_peak_bytes * 1005 / 1000;
    PlannerSettings without;
    without.search = false;
    const auto alone = placed_within(problem, sketch.draft, capacity, without);
    const auto both = placed_within(problem, sketch.draft, capacity, {});
    usual += alone ? 1 : 0;
    with_search += both ? 1 : 0;
    if (alone) {
      EXPECT_EQ(alone, both);
    }
  });
  EXPECT_GT(usual, 0);
  EXPECT_GE(with_search, usual);
}

// Whatever was asked for before: other items, or the same ones in other capacities.
TEST(KnownPlaces, AreThoseOfASearchByItself) {
  std::mt19937 random(1);
  const auto below = [&](std::uint32_t end) { return static_cast<std::int64_t>(random() % end); };
  KnownPlaces known;
  for (int set = 0; set < 20; ++set) {
    std::vector<PlacementItem> items(12);
    for (PlacementItem& item : items) {
      item.first = 1 + below(20);
      item.last = item.first + 1 + below(8);
      item.bytes = Plan{}.alignment * static_cast<Bytes>(1 + below(8));
    }
    const Bytes live = peak_live_bytes(items);
    // Sets that differ in one item's first, last or bytes.
    for (int other = 0; other < 3; ++other) {
      std::vector<PlacementItem> changed = items;
      PlacementItem& item = changed[static_cast<std::size_t>(below(12))];
      if (other == 0) item.first -= 1;
      if (other == 1) item.last += 5;
      if (other == 2) item.bytes *= 3;
      EXPECT_EQ(known.low(changed), place(changed, Plan{}.alignment).offsets);
      EXPECT_EQ(known.within(changed, 2 * live), KnownPlaces{}.within(changed, 2 * live));
    }
    for (int time = 0; time < 2; ++time) {
      EXPECT_FALSE(known.within(items, live - 1));
      for (const Bytes capacity : {live, 2 * live})
        EXPECT_EQ(known.within(items, capacity), KnownPlaces{}.within(items, capacity)) << capacity;
      EXPECT_TRUE(known.within(items, 2 * live));
      EXPECT_EQ(known.low(items), place(items, Plan{}.alignment).offsets);
    }
  }
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

TEST(PlacedLow, DependsOnNoRate) {
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed);
    const Machine machines[] = {testing::random_machine(1), testing::random_machine(2)};
    std::vector<Lifetime> places[2];
    for (int i = 0; i < 2; ++i) {
      const Problem problem = make_problem(graph, machines[i], {.target_bytes = 0});
      places[i] = placed_low(problem, Sketcher(problem, lowest_choices(problem)).serial().draft).lifetimes;
    }
    EXPECT_EQ(places[0], places[1]);
  }
}

}  // namespace
}  // namespace stowage
