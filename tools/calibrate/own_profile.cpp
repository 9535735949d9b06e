#include "tools/calibrate/own_profile.h"

#include <utility>

#include "stowage/planner.h"

namespace stowage {

void add_ops(const Graph& graph, const StepProbe::Step& step, OpProfile& profile) {
  for (OpId id = 0; id < graph.ops.size(); ++id) {
    if (step.ops[id] > 0) profile.add(graph.op(id).kernel, graph.op(id).cost, step.ops[id]);
  }
}

OpProfile profile_of_step(Device& device, const Machine& machine, Bytes most_bytes, std::int64_t samples,
                          const std::function<ProbedStep(std::int64_t samples)>& build) {
  constexpr double longest_step = 0.1, step_time = 0.2;  // seconds
  constexpr int least_steps = 4;
  for (; samples > 0; samples /= 2) {
    ProbedStep step = build(samples);
    if (seconds_by_rates(step.graph, machine) > longest_step) continue;
    if (minimum_bytes(step.graph, Machine{}) > most_bytes) continue;
    StepProbe run(device, std::move(step.graph), step.inputs,
                  {.kernels = {}, .modelled = {}, .budget = most_bytes});
    run.step();  // libraries compile their kernels
    OpProfile profile;
    add_ops(run.graph(), run.steps(least_steps, for_seconds(step_time)), profile);
    return profile;
  }
  return {};
}

}  // namespace stowage
