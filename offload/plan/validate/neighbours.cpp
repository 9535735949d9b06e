#include "offload/plan/validate/neighbours.h"

#include <algorithm>

namespace stowage::validation {

std::vector<std::vector<LifetimeId>> arena_neighbours(const Plan& plan) {
  struct Range {
    Bytes begin, end;
    LifetimeId id;
  };
  std::vector<Range> ranges;
  for (LifetimeId id = 0; id < plan.lifetimes.size(); ++id) {
    const Lifetime& lifetime = plan.lifetimes[id];
    ranges.push_back({lifetime.offset, lifetime.offset + plan.buckets[lifetime.bucket].bytes, id});
  }
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<std::vector<LifetimeId>> neighbours(ranges.size());
  for (auto lower = ranges.begin(); lower != ranges.end(); ++lower) {
    for (auto upper = lower + 1; upper != ranges.end() && upper->begin < lower->end; ++upper) {
      if (lower->begin >= upper->end) continue;  // nothing of it, or its end is beyond all numbers
      neighbours[lower->id].push_back(upper->id);
      neighbours[upper->id].push_back(lower->id);
    }
  }
  return neighbours;
}

}  // namespace stowage::validation
