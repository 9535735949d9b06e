// What the ops of a run's own step take on its own device: a plan by these knows the run's shapes.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/calibrate/op_profile.h"
#include "tools/calibrate/step_probe.h"

namespace stowage {

struct ProbedStep {
  Graph graph;
  std::vector<ProbeInput> inputs;
};

// What a run that keeps to so many bytes of the device may take of it while it is measured: the arena of a
// plan whose machine has this overhead (overhead_on).
Bytes arena_within(const Device& device, Bytes budget, Bytes overhead);

// Adds what each op of the compute lane took.
void add_ops(const Graph& graph, const StepProbe::Step& step, OpProfile& profile);

// Of the step that `build` makes of so many samples, or of half as many, and so on, until a plan fits
// `budget` and the memory that there is, and it takes a tenth of a second at most by the rates of `machine`.
// Takes about half a second. Empty where one sample is too much. Throws as Engine does, but for want of
// memory.
OpProfile profile_of_step(Device& device, const Machine& machine, const Budget& budget, std::int64_t samples,
                          const std::function<ProbedStep(std::int64_t samples)>& build);

}  // namespace stowage
