// What the engine needs of a plan in order not to leave its own memory or to stop halfway. It says
// nothing about whether the plan computes the right thing: that is the validator's work.
#pragma once

#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage {

// Throws InvalidInput naming the first thing that does not hang together: an id out of range, bytes
// outside the arena or a bucket, a transfer without page-locked memory, a wait that is not for an
// earlier instruction, a gate that does not run the clip op, a second one, a commit before it
// or anything but commits and prefetches behind it, an input, loss or norm that
// the host never sees.
void check_executable(const Graph& graph, const Plan& plan);

}  // namespace stowage
