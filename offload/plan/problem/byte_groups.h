// Finds the tensors that share bytes of a bucket: tensors joined by an alias, and partial sums of one
// gradient that are never needed at the same time.
#pragma once

#include <vector>

#include "offload/recompute/recompute.h"

namespace stowage {

// Returns, by tensor, a representative of the tensors that share its bytes. These are the alias groups of the
// analysis. If the graph has several gradient groups (Graph::gradient_groups), partial sums that cross units
// are also joined, for example with 8 groups, one in each unit:
//
//   unit     0    1    2    3    4    5    6    7
//   final   [0   01        03                  07]
//   a                 [2   23]        [6   67]
//   b                           [4   45        47]
//
// Each row is a bucket; its entries are the gradient groups whose sum it holds (03: groups 0 to 3). The
// gradients of groups 1, 3, 5 and 7 are added at once and need no such bucket. In the execution order of the
// analysis each sum is dead before the next sum of its bucket is written. So there is one bucket of partial
// sums for each level of the tree, not one for each group.
std::vector<TensorId> byte_groups(const Graph& graph, const RecomputeAnalysis& analysis);

}  // namespace stowage
