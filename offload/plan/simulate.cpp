#include <algorithm>
#include <array>

#include "offload/plan/fluid.h"
#include "src/graph/cost.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

WorkTime work_of(const Instruction& instruction, const Graph& graph, const Plan& plan,
                 const Machine& machine) {
  auto copy = [&](const Link& link) -> WorkTime {
    return {link.latency_seconds, link.seconds(moved_bytes(plan, instruction).bytes())};
  };
  switch (instruction.kind) {
    case InstructionKind::prefetch:
      return copy(machine.h2d);
    case InstructionKind::offload:
      return copy(machine.d2h);
    default:
      return {0, runs_on_host(instruction) ? host_seconds(graph.op(instruction.op), machine)
                                           : op_seconds(graph.op(instruction.op), machine)};
  }
}

// Where no lane slows another, instructions can be timed in the plan's own order.
Timeline simulate_apart(const Plan& plan, const std::vector<WorkTime>& work) {
  std::size_t count = plan.instructions.size();
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
      free = begin + work[id].seconds;
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
  return timeline;
}

double busy_seconds(const Plan& plan, const Timeline& timeline) {
  double busy = 0;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id)
    if (plan.instructions[id].lane == LaneRole::compute)
      busy += timeline.instructions[id].end - timeline.instructions[id].begin;
  return busy;
}

}  // namespace

Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine) {
  std::vector<WorkTime> work;
  work.reserve(plan.instructions.size());
  for (const Instruction& instruction : plan.instructions)
    work.push_back(work_of(instruction, graph, plan, machine));
  const LaneSpeeds speeds(machine);
  std::optional<Timeline> fluid;
  if (speeds.shared()) fluid = simulate_fluid(plan, work, speeds);
  Timeline timeline = fluid ? *std::move(fluid) : simulate_apart(plan, work);
  timeline.stall_seconds = std::max(0.0, timeline.step_seconds - busy_seconds(plan, timeline));
  return timeline;
}

}  // namespace stowage
