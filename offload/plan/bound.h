// Lower bound on the step time of any plan under a budget (docs/design.md, section 7).
#pragma once

#include <string>

#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage {

struct StepBound {
  double seconds = 0;
  std::string bound_by;  // compute, h2d, d2h, host
};

// Counts only what every plan must do: each op once, and for state that cannot stay on the device
// between steps one gradient out and one parameter in, with its update in host memory. Exact
// clipping puts the updates behind the whole backward pass.
StepBound lower_bound(const Graph& graph, const Machine& machine, Bytes device_budget);

}  // namespace stowage
