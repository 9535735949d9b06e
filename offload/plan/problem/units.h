// The graph in larger units than its own, so that a replay rebuilds more from each stored input.
//
// In chains of thin units, most of what backward needs crosses from one unit into the next, and storing all
// of it takes much memory. With several consecutive units as one, only the values that cross into every third
// unit, say, are stored, and the other values are rebuilt from them: sublinear checkpointing (Chen et al.,
// "Training Deep Nets with Sublinear Memory Cost", 2016, section 4).
#pragma once

#include <cstdint>

#include "offload/plan/problem/items.h"

namespace stowage {

// Returns the graph with each `count` consecutive units as one. Requires a graph of one micro-batch.
Graph with_joined_units(const Graph& graph, std::uint32_t count);

// Returns the graph with both halves of each Transformer block as one unit: consecutive units whose names
// have the same part before the last dot are joined, also those of the blocks of a table.
Graph with_whole_blocks(const Graph& graph);

// Returns the fraction of all items' bytes that no unit's replay rebuilds.
double crossing_share(const std::vector<ActivationItem>& items);

}  // namespace stowage
