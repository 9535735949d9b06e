// The front of small graphs: every choice is looked at, and of the best also other orders.
//
// From the highest limit down, each rung is the fastest that was found within its limit; the next limit is
// just below what it takes. A choice's time in the order of need hardly falls with the limit, so what was too
// slow higher up is not timed again until the best has become as slow (lazy evaluation, as in Minoux's
// greedy). Then orders are searched (order_search.h), of those choices that are not much slower than the
// best.
#pragma once

#include <optional>
#include <vector>

#include "offload/plan/limited_schedule.h"

namespace stowage {

// Fastest first; behind each rung a few others of its limit, for where the best finds no place. `paths`:
// choices that are looked at in any case. nullopt where the graph is not small or has too many choices.
std::optional<std::vector<LimitedSketch>> small_front(const Problem& problem,
                                                      const std::vector<Choices>& paths, Bytes least);

}  // namespace stowage
