// Repeats the copies of a plan back to back on an otherwise idle link: as whole buckets, and
// as single tensors.
#pragma once

#include <vector>

#include "stowage/device.h"
#include "stowage/plan.h"

namespace stowage::bench {

struct CopyTotal {
  Bytes bytes = 0;
  std::size_t copies = 0;
  double seconds = 0;  // 0 if there are no copies
};

struct CopyReplay {
  CopyTotal bucketed;
  CopyTotal per_tensor;
};

// Times the plan's copies of parameters and gradients on the lane of one direction (h2d or d2h). A time is
// the median of three rounds after one that does not count.
CopyReplay replay_copies(Device& device, const Graph& graph, const Plan& plan, LaneRole role);

}  // namespace stowage::bench
