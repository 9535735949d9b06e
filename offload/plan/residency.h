// Residency pass: the path of choices from the least memory to the least time.
//
// Starts with everything streamed, recomputed and offloaded. Then promotes one item at a time by one
// level: whichever buys the most simulated step time per byte held; ties at zero gain go to fewer
// link bytes. Gains are re-evaluated lazily: an item's gain is computed anew only when it comes to
// the top of the queue (Minoux, "Accelerated Greedy Algorithms for Maximizing Submodular Set
// Functions"). The path depends on graph and machine, never on the budget.
#pragma once

#include <vector>

#include "offload/plan/candidate.h"

namespace stowage {

// The lowest level of everything.
Choices minimum_choices(const Problem& problem);
// Everything on the device, nothing recomputed.
Choices resident_choices(const Problem& problem);

// `path.front()` is minimum_choices, each later one is one promotion further.
std::vector<Choices> promotion_path(const Problem& problem);

}  // namespace stowage
