// The update phase: what follows forward and backward when AdamW trains the parameters.
#pragma once

#include <vector>

#include "stowage/graph.h"
#include "stowage/graph_builder.h"

namespace stowage {

// Bytes of all operands, each read or written once: the traffic of an op that nobody described closer.
double operand_bytes(const Graph& graph, const Op& op);

// By tensor: the op that writes it, the last one of several; no_id where none does.
std::vector<OpId> producers_of(const Graph& graph);

// Those that no op reads come last.
std::vector<TensorId> parameters_by_first_use(const Graph& graph);
// Of these, those that are trained.
std::vector<TensorId> trained_by_first_use(const Graph& graph);

// The gradient that a parameter's update takes, which a backward op writes.
struct FinalGradient {
  TensorId tensor = no_id;
  std::int64_t count = 0;  // of its elements, those that are no padding (share_state.h)
};

// Adds a "square_sum" op behind each op that completes a parameter's gradient, the "clip" op, and one "adamw"
// op per parameter in order of first use. A parameter that `optimizer.grid` cuts has one of each for every
// slice. Where the ranks have several gradient groups in all, the grid cuts none, and norms are summed by
// pieces of parameters (share_state.h) in the tree of groups; where there are several ranks, each adds up its
// own pieces, gathers what the others have, and does so with the loss. `gradients`: by tensor, of each
// parameter. `graph` has no update ops yet, and shapes that do not overflow; check() is to follow.
void append_update(Graph& graph, const std::vector<FinalGradient>& gradients, const AdamW& optimizer);

}  // namespace stowage
