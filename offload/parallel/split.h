// Split products: the part of a Transformer's step that one of several devices computes, for planning.
//
// The devices of a group share each product, as in Shoeybi et al., "Megatron-LM", 2019, section 3, with rows
// in shares between two pairs of products (Korthikanti et al., "Reducing Activation Recomputation in Large
// Transformer Models", 2022, section 4.2).
#pragma once

#include "stowage/graph.h"

namespace stowage {

// Returns the step of one of `split` devices: tensors and work of their sizes, and the gathers and exchanges
// between the devices as ops of the peer lane. It is for the planner alone, since no kernels compute parts of
// products yet: shapes say sizes and nothing else.
// - A half-block's products that read the half-block's rows open, and gather these rows; those behind them
//   close, and exchange their sums. Backward is the mirror image. Tables are split by vocabulary: an
//   embedding closes, a head opens, and both gather or exchange rows of their gradients.
// - Weights of such products and tables, their gradients and state, and what lies between opening and closing
//   products, are one part of `split`; so are all rows, and work on them. Other parameters stay whole.
// With `split` 1 the graph itself. Throws InvalidInput if the split is below 1, if a parameter is cut
// (Graph, chunk grid), or if no product opens.
Graph split_of(const Graph& graph, int split);

}  // namespace stowage
