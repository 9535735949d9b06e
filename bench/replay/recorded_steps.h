// The allocations of training steps, recorded while they are made.
#pragma once

#include <span>
#include <string>

#include "stowage/graph.h"

namespace stowage::bench {

// Runs the graphs' steps op by op, as a program without a plan does, each tensor in a block of a
// CachingAllocator, on the simulated device in virtual time: launches do no arithmetic, but what each reads
// and writes is checked against what was in flight in its bytes, so a block that comes back too early ends it
// with AccessViolation. Returns what the allocator was asked for, as a history (docs/history.md); parameters
// and optimizer state are the first graph's, and each graph is an iteration.
std::string record_steps(std::span<const Graph> graphs);

}  // namespace stowage::bench
