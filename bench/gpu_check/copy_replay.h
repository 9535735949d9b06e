// The copies of a plan once more, back to back on an otherwise idle link: whole buckets against each of
// their tensors alone.
#pragma once

#include <vector>

#include "stowage/device.h"
#include "stowage/plan.h"

namespace stowage::bench {

struct CopyTotal {
  Bytes bytes = 0;
  std::size_t copies = 0;
  double seconds = 0;  // 0 without copies
};

struct CopyReplay {
  CopyTotal bucketed;
  CopyTotal per_tensor;
};

// Copies on one direction's lane (h2d or d2h), of parameters and of their gradients: the median of three
// rounds after one that does not count.
CopyReplay replay_copies(Device& device, const Graph& graph, const Plan& plan, LaneRole role);

}  // namespace stowage::bench
