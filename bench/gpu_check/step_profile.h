// Where a step's time went: each instruction as planned and as measured.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "stowage/engine.h"
#include "stowage/machine.h"
#include "stowage/plan.h"

namespace stowage::bench {

struct StepProfile {
  const Graph& graph;
  const Plan& plan;
  const Machine& machine;
  StepReport report;
  std::vector<Interval> timeline;  // Engine::last_timeline
};

// "kernels": the work on the compute lane by kernel, as planned and as measured.
nlohmann::ordered_json kernels_json(const StepProfile& profile);
// "lanes": how long each lane worked, and how long the compute lane waited for which other.
nlohmann::ordered_json lanes_json(const StepProfile& profile);
// CSV, a line for each instruction: when it was planned and when it ran, in microseconds from the gate
// before.
std::string timeline_csv(const StepProfile& profile);

}  // namespace stowage::bench
