// Simulation of a plan whose lanes slow each other. Time goes from event to event; between two events each
// lane works at the speed that the lanes working beside it leave to it.
#pragma once

#include <optional>
#include <vector>

#include "offload/plan/problem/lane_speeds.h"
#include "stowage/planner.h"

namespace stowage {

// Seconds that an instruction takes if nothing slows it. The instruction begins with its `latency`, which
// `seconds` includes: it occupies the lane and cannot be slowed. Other lanes can slow the rest.
struct WorkTime {
  double latency = 0;
  double seconds = 0;
};

inline constexpr int steps_to_settle = 4;

// Simulates steps until two are alike, but at most steps_to_settle. `work`: by instruction. Leaves the
// timeline's `stall_seconds` to the caller. Returns nullopt if the plan has no gate, if its waits have a
// cycle, or if a time is not finite.
std::optional<Timeline> simulate_fluid(const Plan& plan, const std::vector<WorkTime>& work,
                                       const LaneSpeeds& speeds);

// Predicts the same as simulate() of stowage/planner.h. The caller passes the machine's `speeds`, because
// making them takes longer than simulating a small plan.
Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine, const LaneSpeeds& speeds,
                  Clipping clipping = Clipping::none);

}  // namespace stowage
