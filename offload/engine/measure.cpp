#include "offload/engine/measure.h"

#include <algorithm>

namespace stowage {

double Measure::compute_seconds(InstructionId first, InstructionId last, Parity parity) {
  double busy = 0;
  for (const StepEvents::Run& run : events_.runs())
    if (run.first >= first && run.last < last)
      busy += device_.elapsed_seconds(events_.begin(parity, run.first), events_.end(parity, run.last));
  return busy;
}

// All of them stand before the gate, which waits for what is made of them.
double Measure::collective_seconds(Parity parity) {
  double seconds = 0;
  for (const InstructionId id : events_.collectives())
    seconds += device_.elapsed_seconds(events_.begin(parity, id), events_.end(parity, id));
  return seconds;
}

// Between two gates the compute lane runs what the step before left to it behind its gate, and what
// this step has before its own; the gate waits for all of that.
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
