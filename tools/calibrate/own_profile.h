// Measures the ops of the very model that a run will train, on its device, so that the plan uses their true
// times.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/machine/op_profile.h"
#include "tools/calibrate/step_probe.h"

namespace stowage {

struct ProbedStep {
  Graph graph;
  std::vector<ProbeInput> inputs;
};

// Device memory that measuring may use so that a run stays within `budget`, with `overhead` bytes of it for
// context and libraries (overhead_on).
Bytes arena_within(const Device& device, Bytes budget, Bytes overhead);

// Adds what each op of the compute lane took.
void add_ops(const Graph& graph, const StepProbe::Step& step, OpProfile& profile);

// Measures the step that `build` makes of `samples` samples. Where that does not fit `budget` or the memory
// that is free, or would take more than a tenth of a second by the rates of `machine`, half as many are
// tried, and so on; with one sample too much, the profile is empty. Takes about half a second. Throws as
// Engine does, but never OutOfMemory.
OpProfile profile_of_step(Device& device, const Machine& machine, const Budget& budget, std::int64_t samples,
                          const std::function<ProbedStep(std::int64_t samples)>& build);

}  // namespace stowage
