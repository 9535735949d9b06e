// The graph in other units than its own: what a replay rebuilds from a stored input.
//
// Where units are thin, what crosses from one into the next is most of what backward needs, and storing it
// all is dear. With several consecutive units as one, only what crosses into every third, say, is stored, and
// the rest is rebuilt from there: sublinear checkpointing (Chen et al., "Training Deep Nets with Sublinear
// Memory Cost", 2016, section 4).
#pragma once

#include <cstdint>

#include "offload/plan/problem/items.h"

namespace stowage {

// Each `count` consecutive units as one. For graphs of one micro-batch.
Graph with_joined_units(const Graph& graph, std::uint32_t count);

// The graph with both halves of each Transformer block as one unit: consecutive units whose names have the
// same part before the last dot.
Graph with_whole_blocks(const Graph& graph);

// Of all items' bytes, the share of those that no unit's replay rebuilds.
double crossing_share(const std::vector<ActivationItem>& items);

}  // namespace stowage
