// Seconds that are added to a plan's or a choice's time for what the prediction leaves out.
#pragma once

#include "stowage/graph.h"
#include "stowage/machine.h"
#include "stowage/plan.h"
#include "stowage/planner.h"

namespace stowage {

// Seconds added for each transfer.
inline double transfer_price(const Machine& machine, const PlannerSettings& settings) {
  // Only there do compute and the host slow each other.
  const bool on_cores =
      machine.compute_beside_copy < 1 || machine.compute_beside_host < 1 || machine.host_beside_compute < 1;
  return (on_cores ? settings.transfer_risk_on_cores : settings.transfer_risk) * machine.h2d.latency_seconds;
}

// Returns the price of all transfers and replays of a plan.
PlanPrice price_of(const Plan& plan, const Graph& graph, const Machine& machine,
                   const PlannerSettings& settings);

}  // namespace stowage
