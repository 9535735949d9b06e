#include "tools/calibrate/own_profile.h"

#include <algorithm>
#include <utility>

#include "stowage/error.h"

namespace stowage {

Bytes arena_within(const Device& device, Bytes budget, Bytes overhead) {
  const MemoryInfo memory = device.memory_info();
  const Bytes to_come = overhead - std::min(overhead, memory.overhead);
  const Bytes free = memory.free - std::min(memory.free, to_come);
  return budget == unlimited ? free : std::min(free, budget - std::min(budget, overhead));
}

void add_ops(const Graph& graph, const StepProbe::Step& step, OpProfile& profile) {
  for (OpId id = 0; id < graph.ops.size(); ++id) {
    if (step.ops[id] > 0) profile.add(graph.op(id).kernel, graph.op(id).cost, step.ops[id]);
  }
}

namespace {

OpProfile profile_of(Device& device, ProbedStep step, const Budget& budget) {
  constexpr double step_time = 0.2;  // seconds
  constexpr int least_steps = 4;
  StepProbe run(device, std::move(step.graph), step.inputs,
                {.kernels = {}, .modelled = {}, .budget = budget});
  run.step();  // libraries compile their kernels
  OpProfile profile;
  add_ops(run.graph(), run.steps(least_steps, for_seconds(step_time)), profile);
  return profile;
}

}  // namespace

OpProfile profile_of_step(Device& device, const Machine& machine, const Budget& budget, std::int64_t samples,
                          const std::function<ProbedStep(std::int64_t samples)>& build) {
  constexpr double longest_step = 0.1;  // seconds
  for (; samples > 0; samples /= 2) {
    ProbedStep step = build(samples);
    if (seconds_by_rates(step.graph, machine) > longest_step) continue;
    try {
      return profile_of(device, std::move(step), budget);
    } catch (const OutOfMemory&) {
      continue;  // fewer may fit
    }
  }
  return {};
}

}  // namespace stowage
