// Which tensors share bytes of a bucket: those joined by an alias, and partial sums of one gradient of which
// no two are needed at a time.
#pragma once

#include <vector>

#include "offload/recompute/recompute.h"

namespace stowage {

// By tensor: one that names all that it shares bytes with. The alias groups of the analysis, but that with
// several gradient groups (Graph::gradient_groups) partial sums that cross units are joined:
//
//   unit     0    1    2    3    4    5    6    7     each is one of 8 groups
//   final   [0   01        03                  07]
//   a                 [2   23]        [6   67]
//   b                           [4   45        47]
//
// Each column shows the groups that a bucket has the sum of. 1, 3, 5 and 7 are added as soon as they are
// there. In the order of execution of the analysis each sum is dead before the next one of its bucket is
// written. So a bucket of partial sums is there for each level of the tree, not for each group.
std::vector<TensorId> byte_groups(const Graph& graph, const RecomputeAnalysis& analysis);

}  // namespace stowage
