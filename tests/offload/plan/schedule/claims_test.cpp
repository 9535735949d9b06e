#include "offload/plan/schedule/claims.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/candidate.h"
#include "stowage/placement.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

std::vector<PlacementItem> items_of(const Problem& problem, const Draft& draft) {
  std::vector<PlacementItem> items;
  for (const DraftLifetime& lifetime : draft.lifetimes)
    items.push_back({lifetime.first, lifetime.last, problem.layout.buckets[lifetime.bucket].bytes});
  return items;
}

// Prefetches in the link's order.
std::vector<LifetimeId> link_order(const Draft& draft) {
  std::vector<LifetimeId> ids;
  for (LifetimeId id = 0; id < draft.lifetimes.size(); ++id)
    if (draft.lifetimes[id].prefetched) ids.push_back(id);
  const auto key = [&](LifetimeId id) {
    const DraftLifetime& lifetime = draft.lifetimes[id];
    return std::tuple(lifetime.first, lifetime.order, lifetime.first_use);
  };
  std::stable_sort(ids.begin(), ids.end(), [&](LifetimeId a, LifetimeId b) { return key(a) < key(b); });
  return ids;
}

// Only prefetches begin earlier, and none before the bucket's lifetime before it has ended. (Copies that
// replays make and nobody reads live beside others.)
void expect_sound(const Draft& before, const Draft& after, std::size_t& earlier) {
  std::vector<Position> ends;
  for (LifetimeId id = 0; id < after.lifetimes.size(); ++id) {
    const DraftLifetime &was = before.lifetimes[id], &is = after.lifetimes[id];
    EXPECT_LE(is.first, was.first);
    EXPECT_EQ(is.last, was.last);
    if (!was.prefetched) {
      EXPECT_EQ(is.first, was.first);
    }
    earlier += is.first < was.first ? 1 : 0;
    ends.resize(std::max<std::size_t>(ends.size(), was.bucket + std::size_t{1}), 0);
    if (was.prefetched && !was.copy) {
      EXPECT_GE(is.first, std::min(was.first, ends[was.bucket]));
    }
    ends[was.bucket] = std::max(ends[was.bucket], is.last);
  }
  EXPECT_EQ(link_order(after), link_order(before));
}

TEST(Claims, KeepTheCapTheOrderAndWhatComesBefore) {
  std::size_t earlier_within = 0, earlier_at = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::random_machine(seed);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    for (const Choices& choices : minimum_candidates(problem)) {
      const Sketcher sketcher(problem, choices);
      const Sketch sketch = sketcher.within(sketcher.serial_bytes() * 5 / 4, 0);
      const Claims claims(sketch.draft, problem.layout);
      for (const Bytes cap : {sketch.live_peak_bytes, 2 * sketch.live_peak_bytes}) {
        const Draft early = claims.within(cap);
        expect_sound(sketch.draft, early, earlier_within);
        EXPECT_LE(peak_live_bytes(items_of(problem, early)), cap);
      }
      PlacementResult placed = place(items_of(problem, sketch.draft), 256);
      const Draft early = claims.at(placed.offsets);
      expect_sound(sketch.draft, early, earlier_at);
      EXPECT_EQ(check_placement(items_of(problem, early), placed, 256), "");
    }
  }
  EXPECT_GT(earlier_within, 0u);
  EXPECT_GT(earlier_at, 0u);
}

}  // namespace
}  // namespace stowage
