// Ranks: devices that train one model together. Each has a share of every parameter, of its gradient and of
// its optimizer state, as ZeRO has it (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training
// Trillion Parameter Models", stage 3), cut so that no sum depends on their number.
//
// A parameter's elements, in order, are cut into as many *pieces* as all ranks have gradient groups: equal
// ones, a multiple of 256 elements, of which the last may be cut short or empty. A rank's share is the pieces
// of its groups. All shares have one size, so that all ranks have the same graph; elements behind the
// parameter's last are padding, whose gradient is zero.
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

// All in elements.
struct ParameterShare {
  std::int64_t piece = 0;
  std::int64_t all = 0;    // of the share, padding included
  std::int64_t first = 0;  // of the parameter
  std::int64_t count = 0;  // of the share, without padding; may be 0
};
// Of a parameter of so many elements, where each of the ranks has `groups` gradient groups.
ParameterShare share_of(std::int64_t elements, std::uint32_t groups, BatchShare share);

// Turns the forward and backward ops of one rank's part of the batch, whose parameters are whole, into those
// of a rank that has its share of them. Each parameter's tensor becomes the share; what ops read in its place
// is gathered from all ranks (`gather`) before the first op that reads it, and may be dropped and gathered
// anew, as any op's result. Of each use's gradient the shares are exchanged (`exchange`) and added up in the
// tree of ranks
// (`tree_sum`), then the uses'. `use_gradients`: by parameter, the whole gradient of each of its uses, in the
// order in which they are added (GraphBuilder::use_gradients_of). Returns by tensor a parameter's final
// gradient.
std::vector<FinalGradient> share_state(Graph& graph,
                                       const std::map<TensorId, std::vector<TensorId>>& use_gradients);

}  // namespace stowage
