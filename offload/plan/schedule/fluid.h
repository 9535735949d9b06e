// The step with lanes that slow each other: discrete events in time, between which each lane works at the
// speed that those who work with it leave to it.
#pragma once

#include <optional>
#include <vector>

#include "offload/plan/problem/lane_speeds.h"
#include "stowage/planner.h"

namespace stowage {

// How long an instruction takes if nothing slows it, in seconds. It begins with `latency`, which occupies its
// lane and cannot be slowed; other lanes can slow the rest.
struct WorkTime {
  double latency = 0;
  double seconds = 0;
};

inline constexpr int steps_to_settle = 4;

// By instruction. Runs steps until two are alike, at most steps_to_settle. `stall_seconds` is left to the
// caller. Nothing for a plan whose waits go round in a circle or that has no gate, and where a time is not
// finite.
std::optional<Timeline> simulate_fluid(const Plan& plan, const std::vector<WorkTime>& work,
                                       const LaneSpeeds& speeds);

// As in stowage/planner.h, with the machine's `speeds` at hand: to make them takes longer than to simulate a
// small plan.
Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine, const LaneSpeeds& speeds,
                  Clipping clipping = Clipping::none);

}  // namespace stowage
