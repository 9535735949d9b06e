// The allocations of training steps, recorded while they are made.
#pragma once

#include <span>
#include <string>

#include "stowage/graph.h"

namespace stowage::bench {

// Runs the graphs' steps op by op, as a program without a plan does, with each tensor in a block of a
// CachingAllocator. Returns the requests to the allocator as a history (docs/history.md). Each graph is an
// iteration. Parameters and optimizer state come from the first graph.
//
// The device is simulated, in virtual time. Launches do no arithmetic, but the device checks the bytes
// that each launch reads and writes against work in flight. Throws AccessViolation if a block comes
// back too early.
std::string record_steps(std::span<const Graph> graphs);

}  // namespace stowage::bench
