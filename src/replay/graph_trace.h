// What a program would ask of an allocator that runs the steps of graphs op by op.
#pragma once

#include <span>

#include "src/history/allocation_trace.h"
#include "stowage/graph.h"

namespace stowage {

// Each graph is one iteration. Parameters and optimizer state, those of the first graph, are allocated ahead
// and stay; inputs are allocated as the iteration begins; every other tensor before the op that writes it
// first, and freed after the op that touches it last (a workspace: its only one). Nothing is aliased. On one
// stream.
AllocationTrace trace_of_steps(std::span<const Graph> graphs);

}  // namespace stowage
