// Whether a graph's updates have to look at all gradients first.
#pragma once

#include <string>

#include "stowage/graph.h"

namespace stowage {

// Why an update of the graph may not be made for good before all gradients are known
// (Plan::optimizer_in_backward), and what to do; empty: it may.
std::string why_updates_wait(const Graph& graph);

// Throws InvalidInput with that reason if there is one.
void require_no_clipping(const Graph& graph);

}  // namespace stowage
