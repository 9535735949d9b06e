// Removes every wait of a plan in turn.
#pragma once

#include "stowage/graph.h"
#include "stowage/launch_table.h"
#include "stowage/plan.h"

namespace stowage::testing {

struct WaitSweep {
  int caught = 0;   // the device in virtual time reports a race within three steps
  int implied = 0;  // … reports none, and lane order and the other waits imply the one removed
};

// Fails the test for every wait that is neither.
WaitSweep sweep_waits(const Graph& graph, const Plan& plan, const LaunchTable& kernels,
                      std::int32_t input_range);

}  // namespace stowage::testing
