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

// Adds what each op of the compute lane took.
void add_ops(const Graph& graph, const StepProbe::Step& step, OpProfile& profile);

// Of the step that `build` makes of so many samples, or of half as many, and so on, until a plan fits
// `most_bytes` of the device and takes a tenth of a second at most by the rates of `machine`. Takes about
// half a second. Empty where one sample is too much. Throws as Engine does.
OpProfile profile_of_step(Device& device, const Machine& machine, Bytes most_bytes, std::int64_t samples,
                          const std::function<ProbedStep(std::int64_t samples)>& build);

}  // namespace stowage
