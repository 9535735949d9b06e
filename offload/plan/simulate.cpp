#include <algorithm>
#include <array>

#include "src/graph/cost.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

constexpr int steps_to_settle = 4;

double seconds_of(const Instruction& instruction, const Graph& graph, const Plan& plan,
                  const Machine& machine) {
  auto bytes = [&] { return plan.buckets[plan.lifetimes[instruction.lifetime].bucket].bytes; };
  switch (instruction.kind) {
    case InstructionKind::prefetch:
      return machine.h2d.seconds(bytes());
    case InstructionKind::offload:
      return machine.d2h.seconds(bytes());
    case InstructionKind::host_step:
      return host_seconds(graph.op(instruction.op), machine);
    default:
      return op_seconds(graph.op(instruction.op), machine);
  }
}

}  // namespace

Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine) {
  std::size_t count = plan.instructions.size();
  std::vector<double> seconds(count);
  for (std::size_t i = 0; i < count; ++i) seconds[i] = seconds_of(plan.instructions[i], graph, plan, machine);
  std::vector<Interval> now(count);
  std::vector<Interval> before;
  std::array<double, lane_roles> lane_free{};
  double gate_before = 0;
  Timeline timeline;
  for (int step = 0; step < steps_to_settle; ++step) {
    double gate = gate_before;
    for (InstructionId id = 0; id < count; ++id) {
      const Instruction& instruction = plan.instructions[id];
      double& free = lane_free[static_cast<std::size_t>(instruction.lane)];
      double begin = std::max(free, gate);
      for (const Wait& wait : instruction.waits) {
        if (wait.steps_back == 0)
          begin = std::max(begin, now[wait.instruction].end);
        else if (!before.empty())
          begin = std::max(begin, before[wait.instruction].end);
      }
      free = begin + seconds[id];
      now[id] = {begin, free};
      if (id == plan.gate) gate = free;
    }
    timeline.instructions = now;
    timeline.step_seconds = gate - gate_before;
    for (Interval& interval : timeline.instructions) {
      interval.begin -= gate_before;
      interval.end -= gate_before;
    }
    before = now;
    gate_before = gate;
  }
  double busy = 0;
  for (std::size_t i = 0; i < count; ++i)
    if (plan.instructions[i].lane == LaneRole::compute) busy += seconds[i];
  timeline.stall_seconds = std::max(0.0, timeline.step_seconds - busy);
  return timeline;
}

}  // namespace stowage
