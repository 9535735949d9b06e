// Ranks: devices that train one model together. A rank has a share of every parameter, of its gradient and of
// its optimizer state, as in ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
// Parameter Models", stage 3), cut so that no sum depends on the number of ranks.
//
// A parameter's elements, in order, are cut into as many *pieces* as all ranks have gradient groups. Pieces
// are equal, a multiple of 256 elements; the last ones may be cut short or empty. A rank's share is the
// pieces of its groups. Every share has the same size, so that all ranks have the same graph; elements behind
// the parameter's last one are padding, whose gradient is zero.
//
//   piece    0     1     2     3
//          |#####|#####|#####|##   |    # elements of the parameter
//          |- share 0 -|- share 1 -|    two ranks, of two groups each
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "src/graph/update_ops.h"
#include "stowage/graph.h"

namespace stowage {

// A rank's share of a parameter, in elements.
struct ParameterShare {
  std::int64_t piece = 0;
  std::int64_t all = 0;    // elements of the share, padding included
  std::int64_t first = 0;  // position of the share in the parameter
  std::int64_t count = 0;  // elements of the share without padding; may be 0
};
// Returns the share of a parameter of `elements`, if each of the ranks has `groups` gradient groups.
ParameterShare share_of(std::int64_t elements, std::uint32_t groups, BatchShare share);

// Turns forward and backward ops with whole parameters, for one rank's part of the batch, into the ops of a
// rank with shares. A parameter's tensor becomes the share. Ops read the whole parameter instead from a
// `gather` of all ranks before the first of them; it may be dropped and gathered anew, like any op's result.
// The gradient of each use is exchanged in shares (`exchange`), which are added up in the tree of ranks
// (`tree_sum`); then the uses' shares are added up. `use_gradients` has by parameter the whole gradient of
// each of its uses, in the order in which they are added (GraphBuilder::use_gradients_of). Returns, by
// tensor, each parameter's final gradient.
std::vector<FinalGradient> share_state(Graph& graph,
                                       const std::map<TensorId, std::vector<TensorId>>& use_gradients);

}  // namespace stowage
