// Plans with gaps: `complete` seldom leaves any.
#pragma once

#include "offload/plan/candidate.h"
#include "src/placement/greedy.h"

namespace stowage::testing {

// Lifetimes where greedy orders alone put them.
inline Plan placed_greedily(const Problem& problem, const Draft& draft) {
  using placement::Goal, placement::place_greedily;
  std::vector<PlacementItem> items;
  for (const DraftLifetime& lifetime : draft.lifetimes)
    items.push_back({lifetime.first, lifetime.last, problem.layout.buckets[lifetime.bucket].bytes});
  return complete_at(problem, draft, place_greedily(items, Plan{}.alignment, {}, Goal::nearly).offsets);
}

}  // namespace stowage::testing
