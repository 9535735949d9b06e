// What the events of a step say about time.
#pragma once

#include <optional>
#include <vector>

#include "offload/engine/step_events.h"
#include "stowage/plan.h"

namespace stowage {

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
