// The events of a plan's instructions, and the times that they tell.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "stowage/device.h"
#include "stowage/engine.h"
#include "stowage/plan.h"

namespace stowage {

// Which of the two sets a step uses: its number modulo 2.
using Parity = std::uint32_t;

// Has two events for each event of an instruction: consecutive steps use them in turn, so that a wait for the
// step before still means that step when this one has recorded its own.
class StepEvents {
 public:
  // Consecutive instructions of the compute lane, all before the gate or all behind it, of which none but the
  // first may have to wait: from the first one's begin to the last one's end the lane is busy.
  struct Run {
    InstructionId first = no_id;
    InstructionId last = no_id;
  };

  // End events for the gate, for instructions that someone waits for and for those in `needed`, and what the
  // measurement takes: begin and end of each run and of each of the `collectives`, or of every instruction.
  // The end of an instruction is also the begin of the next one on its lane, unless that one may have to
  // wait.
  StepEvents(Device& device, const Plan& plan, std::initializer_list<InstructionId> needed,
             Measurement measurement, std::vector<InstructionId> collectives = {});

  Measurement measurement() const { return measurement_; }
  std::span<const Run> runs() const { return runs_; }
  std::span<const InstructionId> collectives() const { return collectives_; }  // that are measured
  // Whether the instruction records an event of its own there.
  bool records_begin(InstructionId id) const { return begin_of_[id] == id; }
  bool records_end(InstructionId id) const { return records_end_[id]; }
  // Of instructions that have one.
  EventId begin(Parity parity, InstructionId id) const {
    return begin_of_[id] == id ? begins_[parity][id].id() : ends_[parity][begin_of_[id]].id();
  }
  EventId end(Parity parity, InstructionId id) const { return ends_[parity][id].id(); }

 private:
  Measurement measurement_;
  std::vector<Run> runs_;
  std::vector<InstructionId> collectives_;
  std::vector<InstructionId> begin_of_;  // itself, the instruction whose end is its begin, or no_id
  std::vector<bool> records_end_;
  std::array<std::vector<Event>, 2> begins_;
  std::array<std::vector<Event>, 2> ends_;
};

struct StepTime {
  double seconds = 0;             // from gate to gate, less the idle time between them
  double stall_fraction = 0;      // share of it in which the compute lane ran nothing; 0 if not measured
  double collective_seconds = 0;  // from the begin of each collective of the step to its end
};

class Measure {
 public:
  // Everything must outlive it.
  Measure(Device& device, const Plan& plan, const StepEvents& events)
      : device_(device), plan_(plan), events_(events) {}

  // The step of `parity` is past its gate. `start`: what its time is counted from, the end of the
  // gate of the step before or the start of the first step, and `idle` seconds of it do not count.
  // `step_before`: its events stand.
  StepTime step_time(Parity parity, EventId start, double idle, bool step_before);

  // With Measurement::timeline. Nothing of the step is in flight. The earliest begin is second 0.
  std::vector<Interval> timeline(Parity parity);

 private:
  double collective_seconds(Parity parity);
  double compute_seconds(InstructionId first, InstructionId last, Parity parity);

  Device& device_;
  const Plan& plan_;
  const StepEvents& events_;
};

}  // namespace stowage
