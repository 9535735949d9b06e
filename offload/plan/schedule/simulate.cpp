#include <algorithm>
#include <array>

#include "offload/plan/schedule/fluid.h"
#include "src/graph/cost.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

// Computes the WorkTime of each instruction of a plan.
class Works {
 public:
  Works(const Graph& graph, const Plan& plan, const Machine& machine, Clipping clipping)
      : graph_(graph),
        plan_(plan),
        machine_(machine),
        clipping_(clipping),
        speculations_(speculations(plan, graph.ops.size())) {}

  std::vector<WorkTime> all() const {
    std::vector<WorkTime> work;
    work.reserve(plan_.instructions.size());
    for (const Instruction& instruction : plan_.instructions) work.push_back(of(instruction));
    return work;
  }

 private:
  WorkTime of(const Instruction& instruction) const {
    switch (instruction.kind) {
      case InstructionKind::prefetch:
        return copy(machine_.h2d, instruction);
      case InstructionKind::offload:
        return copy(machine_.d2h, instruction);
      default:
        if (runs_on_host(instruction)) return {0, on_host(instruction)};
        return on_device(graph_.op(instruction.op), instruction.lane);
    }
  }
  // Computation of the peer lane on the device slows no copy, so it counts as latency.
  WorkTime on_device(const Op& op, LaneRole lane) const {
    const double seconds = op_seconds(op, machine_);
    return {lane == LaneRole::peer ? seconds - peer_seconds(op, machine_) : 0, seconds};
  }
  WorkTime copy(const Link& link, const Instruction& transfer) const {
    return {link.latency_seconds, link.seconds(moved_bytes(plan_, transfer).bytes())};
  }
  double on_host(const Instruction& instruction) const {
    const Op& op = graph_.op(instruction.op);
    if (speculations_[instruction.op] == no_id || clipping_ == Clipping::expected)
      return instruction.kind == InstructionKind::speculate ? 0 : host_seconds(op, machine_);
    const bool works = instruction.kind == InstructionKind::speculate || clipping_ == Clipping::unexpected;
    return works ? undoable_seconds(graph_, op, machine_) : 0;
  }

  const Graph& graph_;
  const Plan& plan_;
  const Machine& machine_;
  Clipping clipping_;
  std::vector<InstructionId> speculations_;  // the op's speculating instruction, by op
};

// Times the instructions in the plan's own order, as if no lane slowed another.
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

Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine, Clipping clipping) {
  return simulate(graph, plan, machine, LaneSpeeds(machine), clipping);
}

Timeline simulate(const Graph& graph, const Plan& plan, const Machine& machine, const LaneSpeeds& speeds,
                  Clipping clipping) {
  const std::vector<WorkTime> work = Works(graph, plan, machine, clipping).all();
  std::optional<Timeline> fluid;
  if (speeds.shared()) fluid = simulate_fluid(plan, work, speeds);
  Timeline timeline = fluid ? *std::move(fluid) : simulate_apart(plan, work);
  timeline.stall_seconds = std::max(0.0, timeline.step_seconds - busy_seconds(plan, timeline));
  return timeline;
}

}  // namespace stowage
