// The extreme choices: the fewest device bytes, and everything on the device.
#pragma once

#include <vector>

#include "offload/plan/problem/problem.h"

namespace stowage {

// Returns the lowest choice of everything: all values that can be recomputed are, and the others spill.
Choices lowest_choices(const Problem& problem);
// Returns candidates for the fewest live bytes of a serial schedule: the lowest choices; choices with all
// activations, or all that no replay rebuilds, on the host or kept; and the lowest choices without the
// replays that need more bytes than the other candidates do.
std::vector<Choices> minimum_candidates(const Problem& problem);
// Returns the choices with everything on the device and nothing recomputed.
Choices resident_choices(const Problem& problem);

// Returns the highest LoadChoice that a bucket can have; each_op if there is no choice.
LoadChoice highest_load(const Problem& problem, BucketId bucket);

}  // namespace stowage
