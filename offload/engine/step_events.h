// The events of a plan's instructions, and times from them.
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

// The set of events that a step uses: its number modulo 2.
using Parity = std::uint32_t;

// Has two events for each event of an instruction: consecutive steps use them in turn, so that a wait for the
// step before still means that step when this one has recorded its own.
class StepEvents {
 public:
  // Consecutive instructions of the compute lane, all before the gate or all behind it. Only the first may
  // have to wait, so the lane is busy from its begin to the end of the last.
  struct Run {
    InstructionId first = no_id;
    InstructionId last = no_id;
  };

  // Makes end events for the gate, for instructions that others wait for and for `needed`; and for the
  // measurement begin and end events of each run and of each of the `collectives`, or of every instruction.
  // An instruction that never has to wait begins with the end of the one before it on its lane, and needs no
  // begin event.
  StepEvents(Device& device, const Plan& plan, std::initializer_list<InstructionId> needed,
             Measurement measurement, std::vector<InstructionId> collectives = {});

  Measurement measurement() const { return measurement_; }
  std::span<const Run> runs() const { return runs_; }
  // Collectives that are measured.
  std::span<const InstructionId> collectives() const { return collectives_; }
  // True if the instruction records its own event at its begin or end.
  bool records_begin(InstructionId id) const { return begin_of_[id] == id; }
  bool records_end(InstructionId id) const { return records_end_[id]; }
  // Require that the instruction has such an event.
  EventId begin(Parity parity, InstructionId id) const {
    return begin_of_[id] == id ? begins_[parity][id].id() : ends_[parity][begin_of_[id]].id();
  }
  EventId end(Parity parity, InstructionId id) const { return ends_[parity][id].id(); }

 private:
  Measurement measurement_;
  std::vector<Run> runs_;
  std::vector<InstructionId> collectives_;
  // By instruction: itself, the instruction whose end is its begin, or no_id.
  std::vector<InstructionId> begin_of_;
  std::vector<bool> records_end_;
  std::array<std::vector<Event>, 2> begins_;
  std::array<std::vector<Event>, 2> ends_;
};

struct StepTime {
  double seconds = 0;             // time from gate to gate, less the idle time between them
  double stall_fraction = 0;      // part of `seconds` in which the compute lane was idle; 0 if not measured
  double collective_seconds = 0;  // sum over the step's collectives, each from its begin to its end
};

class Measure {
 public:
  // All arguments must outlive the object.
  Measure(Device& device, const Plan& plan, const StepEvents& events)
      : device_(device), plan_(plan), events_(events) {}

  // Requires that the step of `parity` is past its gate. `start`: event from which its time is counted, the
  // end of the gate of the step before or the start of the first step. `idle`: seconds that do not count.
  // `step_before`: events of the previous step are still valid.
  StepTime step_time(Parity parity, EventId start, double idle, bool step_before);

  // Requires Measurement::timeline, and no work of the step in flight. The earliest begin is second 0.
  std::vector<Interval> timeline(Parity parity);

 private:
  double collective_seconds(Parity parity);
  double compute_seconds(InstructionId first, InstructionId last, Parity parity);

  Device& device_;
  const Plan& plan_;
  const StepEvents& events_;
};

}  // namespace stowage
