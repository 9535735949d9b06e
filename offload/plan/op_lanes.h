// On which lane an op runs if it runs on the device.
#pragma once

#include <vector>

#include "stowage/graph.h"
#include "stowage/lanes.h"

namespace stowage {

// By op. On the peer lane: collectives (launch_table.h), and what backward does with nothing but their
// results, such as the sum of the shares that came of a gradient, and its part of the norm. So no op of the
// compute lane waits until gradients are exchanged. All else is on the compute lane.
std::vector<LaneRole> op_lanes(const Graph& graph);

}  // namespace stowage
