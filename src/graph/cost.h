// Modelled time of one op on a machine: the one formula that the planner predicts with and that the
// engine gives to a device which runs in virtual time.
#pragma once

#include <algorithm>

#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage {

// Seconds on the compute lane: what was measured, else the slower of arithmetic and device memory, plus the
// launch.
inline double op_seconds(const Op& op, const Machine& machine) {
  if (op.cost.seconds) return *op.cost.seconds;
  return std::max(op.cost.flops / machine.flops_per_second, op.cost.bytes / machine.device_bytes_per_second) +
         machine.launch_seconds;
}

// Seconds on the host lane: update ops are bound by host memory.
inline double host_seconds(const Op& op, const Machine& machine) {
  return op.cost.bytes / machine.host_bytes_per_second;
}

}  // namespace stowage
