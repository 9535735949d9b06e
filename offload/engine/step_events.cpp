#include "offload/engine/step_events.h"

#include <algorithm>
#include <utility>

namespace stowage {
namespace {

// Returns, by instruction, the instruction before it on its lane if it starts as soon as that one ends. The
// result is no_id for an instruction that waits for another lane, and for a lane's first instruction in the
// step or behind the gate (the host itself waits for the gate).
std::vector<InstructionId> instructions_before(const Plan& plan) {
  std::array<InstructionId, lane_roles> newest;
  newest.fill(no_id);
  std::vector<InstructionId> result;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    InstructionId& before = newest[static_cast<std::size_t>(instruction.lane)];
    result.push_back(instruction.waits.empty() ? before : no_id);
    before = id;
    if (id == plan.gate) newest.fill(no_id);
  }
  return result;
}

std::vector<StepEvents::Run> compute_runs(const Plan& plan, const std::vector<InstructionId>& before) {
  std::vector<StepEvents::Run> runs;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    if (plan.instructions[id].lane != LaneRole::compute) continue;
    if (before[id] == no_id) runs.push_back({id, id});
    runs.back().last = id;
  }
  return runs;
}

std::vector<bool> instructions_with_end(const Plan& plan, std::initializer_list<InstructionId> needed,
                                        bool all) {
  std::vector<bool> result(plan.instructions.size(), all);
  for (InstructionId id : needed) result[id] = true;
  for (const Instruction& instruction : plan.instructions)
    for (const Wait& wait : instruction.waits) result[wait.instruction] = true;
  return result;
}

}  // namespace

StepEvents::StepEvents(Device& device, const Plan& plan, std::initializer_list<InstructionId> needed,
                       Measurement measurement, std::vector<InstructionId> collectives)
    : measurement_(measurement),
      begin_of_(plan.instructions.size(), no_id),
      records_end_(instructions_with_end(plan, needed, measurement == Measurement::timeline)) {
  const std::vector<InstructionId> before = instructions_before(plan);
  std::vector<bool> timed(plan.instructions.size(), measurement == Measurement::timeline);
  records_end_[plan.gate] = timed[plan.gate] = true;
  if (measurement != Measurement::step) {
    runs_ = compute_runs(plan, before);
    collectives_ = std::move(collectives);
  }
  for (const Run& run : runs_) {
    begin_of_[run.first] = run.first;
    records_end_[run.last] = timed[run.last] = true;
  }
  for (const InstructionId id : collectives_) {
    begin_of_[id] = id;
    records_end_[id] = timed[id] = true;
  }
  if (measurement == Measurement::timeline)
    for (InstructionId id = 0; id < before.size(); ++id)
      begin_of_[id] = before[id] == no_id ? id : before[id];
  for (Parity parity = 0; parity < 2; ++parity) {
    for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
      begins_[parity].push_back(records_begin(id) ? Event(device) : Event());
      ends_[parity].push_back(!records_end_[id] ? Event()
                              : timed[id]       ? Event(device)
                                                : Event::untimed(device));
    }
  }
}

double Measure::compute_seconds(InstructionId first, InstructionId last, Parity parity) {
  double busy = 0;
  for (const StepEvents::Run& run : events_.runs())
    if (run.first >= first && run.last < last)
      busy += device_.elapsed_seconds(events_.begin(parity, run.first), events_.end(parity, run.last));
  return busy;
}

// All collectives are before the gate, which waits for values made from their results.
double Measure::collective_seconds(Parity parity) {
  double seconds = 0;
  for (const InstructionId id : events_.collectives())
    seconds += device_.elapsed_seconds(events_.begin(parity, id), events_.end(parity, id));
  return seconds;
}

// Between two gates the compute lane runs the instructions of the previous step behind its gate, and those of
// this step before its own gate, which waits for all of them.
StepTime Measure::step_time(Parity parity, EventId start, double idle, bool step_before) {
  StepTime time;
  time.seconds = std::max(0.0, device_.elapsed_seconds(start, events_.end(parity, plan_.gate)) - idle);
  if (events_.measurement() == Measurement::step || time.seconds <= 0) return time;
  double busy = compute_seconds(0, plan_.gate, parity);
  if (step_before)
    busy +=
        compute_seconds(plan_.gate + 1, static_cast<InstructionId>(plan_.instructions.size()), 1 - parity);
  time.stall_fraction = std::clamp(1 - busy / time.seconds, 0.0, 1.0);
  time.collective_seconds = collective_seconds(parity);
  return time;
}

std::vector<Interval> Measure::timeline(Parity parity) {
  std::vector<Interval> intervals(plan_.instructions.size());
  const EventId reference = events_.begin(parity, 0);
  double earliest = 0;
  for (InstructionId id = 0; id < intervals.size(); ++id) {
    intervals[id] = {device_.elapsed_seconds(reference, events_.begin(parity, id)),
                     device_.elapsed_seconds(reference, events_.end(parity, id))};
    earliest = std::min(earliest, intervals[id].begin);
  }
  for (Interval& interval : intervals) {
    interval.begin -= earliest;
    interval.end -= earliest;
  }
  return intervals;
}

}  // namespace stowage
