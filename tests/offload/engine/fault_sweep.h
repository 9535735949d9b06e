// Injects a fault at every device call of a step in turn and judges what the engine makes of it.
#pragma once

#include <functional>

#include "stowage/engine.h"
#include "stowage/simulated_device.h"

namespace stowage::testing {

struct FaultSweep {
  const Graph& graph;
  const Plan& plan;
  LaunchTable kernels;
  Executor executor = Executor::virtual_time;
  Fault::Kind kind = Fault::Kind::call;
  std::uint64_t faulted_step = 2;  // 0-based
  std::uint64_t steps = 5;
  bool drain_after = true;  // look for a failed update at once, or leave that to the next step
  std::int32_t input_range = 5;
  bool verify_recompute = false;
};

// Expects of every fault: a StepError that names op, bytes and lane; values as of the last completed
// step; and, going on, the bits of a run without faults. Returns the number of calls swept.
int sweep_faults(const FaultSweep& sweep);

}  // namespace stowage::testing
