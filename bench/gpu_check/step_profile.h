// Where a step's time went: each instruction as planned and as measured.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stowage/engine.h"
#include "stowage/launch_table.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage::bench {

struct StepProfile {
  const Graph& graph;
  const Plan& plan;
  const Machine& machine;
  StepReport report;
  std::vector<Interval> timeline;  // Engine::last_timeline
  const LaunchTable& kernels;      // the engine's
};

// Returns "kernels": the compute lane's work by kernel, planned and measured. Updates that the engine makes
// by one launch (offload/engine/joint.h) are so many "ops"; the first of them has the time of all.
nlohmann::ordered_json kernels_json(const StepProfile& profile);
// Returns "lanes": how long each lane worked, and how long the compute lane waited for each other lane.
nlohmann::ordered_json lanes_json(const StepProfile& profile);
// Returns CSV with a line for each instruction: when it was planned and when it ran, in microseconds from the
// previous gate.
std::string timeline_csv(const StepProfile& profile);

}  // namespace stowage::bench
