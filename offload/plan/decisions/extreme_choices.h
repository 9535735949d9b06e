// The ends of what can be chosen: the fewest device bytes, and everything on the device.
#pragma once

#include <vector>

#include "offload/plan/problem/problem.h"

namespace stowage {

// The lowest choice of everything: all values that can be are recomputed, the others spill.
Choices lowest_choices(const Problem& problem);
// Candidates for the fewest live bytes of a serial schedule: the lowest choices; all activations on the host,
// or kept; and the lowest choices without the replays that need more bytes than the others do.
std::vector<Choices> minimum_candidates(const Problem& problem);
// Everything on the device, nothing recomputed.
Choices resident_choices(const Problem& problem);

// The highest LoadChoice of a bucket; each_op where there is no choice.
LoadChoice highest_load(const Problem& problem, BucketId bucket);

}  // namespace stowage
