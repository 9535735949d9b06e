#include "offload/plan/op_lanes.h"

#include <algorithm>
#include <cstdint>

namespace stowage {

std::vector<LaneRole> op_lanes(const Graph& graph) {
  std::vector<LaneRole> lanes(graph.ops.size(), LaneRole::compute);
  std::vector<std::uint8_t> came_from_peers(graph.tensors.size(), 0);  // by tensor
  for (OpId id = 0; id < graph.ops.size(); ++id) {
    const Op& op = graph.op(id);
    const bool follows = op.phase == Phase::backward && !op.reads.empty() &&
                         std::all_of(op.reads.begin(), op.reads.end(),
                                     [&](TensorId read) { return came_from_peers[read] != 0; });
    if (!is_collective(op) && !follows) continue;
    lanes[id] = LaneRole::peer;
    for (const TensorId written : op.writes) came_from_peers[written] = 1;
  }
  return lanes;
}

}  // namespace stowage
