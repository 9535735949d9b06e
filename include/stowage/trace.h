// A trace: the ops of one training step of any program, recorded elsewhere, with the times they took.
//
// JSON Lines, described with an example in docs/trace.md: a header, then a line for each tensor and each op,
// in program order. Its graph can be planned but not run: no launch table knows its kernels.
#pragma once

#include <string_view>

#include "stowage/graph.h"

namespace stowage {

// True if `text` begins as a trace does: with an object whose first member is "stowage_trace".
bool is_trace(std::string_view text);

// The traced step as a graph with a loss and an update phase: the trace's own, or that of the optimizer which
// its header names, in the form of GraphBuilder::finish. Treats its text as hostile: InvalidInput that names
// line and field and says what to do, never worse.
Graph graph_from_trace(std::string_view text);

}  // namespace stowage
