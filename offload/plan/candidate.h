// One member of the plan family: choices, and how much memory their transfers may take, made into a plan by
// the passes.
#pragma once

#include "offload/plan/choices.h"
#include "offload/plan/items.h"
#include "offload/plan/lifetimes.h"
#include "offload/plan/schedule.h"
#include "stowage/planner.h"

namespace stowage {

// What does not change from candidate to candidate.
struct Problem {
  const Graph* graph = nullptr;
  const Machine* machine = nullptr;
  RecomputeAnalysis analysis;
  BucketLayout layout;
  std::vector<ActivationItem> items;
  std::vector<Bucket> sizes;  // the layout's buckets with nothing but their bytes, cheap to copy
};
Problem make_problem(const Graph& graph, const Machine& machine, const BucketOptions& options,
                     MicroBatchOrder order = MicroBatchOrder::layer_major);

// Before placement.
struct Sketch {
  Draft draft;
  Bytes live_peak_bytes = 0;
  double compute_seconds = 0;  // of the compute lane's work alone
  double step_seconds = 0;     // an estimate (see time_sketch)
  double least_seconds = 0;    // plans that are faster are not made
  Bytes link_bytes = 0;
};
// Untimed sketches of the same choices with several caps.
class Sketcher {
 public:
  Sketcher(const Problem& problem, const Choices& choices, const Handicaps& handicaps = {});
  // Live bytes of the serial sketch: no sketch has fewer.
  Bytes serial_bytes() const { return serial_bytes_; }
  Sketch serial() const;
  // With no more live bytes than `cap`, or than the serial one has.
  Sketch within(Bytes cap) const;
  // With no more transfers ahead of use, whatever their bytes; 0: serial.
  Sketch ahead(std::uint32_t distance) const;
  double compute_seconds() const { return compute_seconds_; }

 private:
  Sketch measured(Draft draft) const;

  const Problem& problem_;
  Draft draft_;
  Durations durations_;
  Bytes serial_bytes_ = 0;
  double compute_seconds_ = 0;
};

// Whether all plans that may be faster than the best are looked at, whatever it costs.
bool is_small(const Graph& graph);

// Sets step_seconds and least_seconds: of a small graph the times without any waits for bytes, and of that
// with lanes that do not slow each other; of others an estimate, which knows when bytes are free but not
// which, and less by `margin` of it.
void time_sketch(const Problem& problem, Sketch& sketch, double margin);

// The same lifetimes under a cap on the live bytes.
Draft rescheduled(const Problem& problem, const Draft& draft, Bytes cap);

// No plan of this draft takes less, wherever its lifetimes stand: no waits for bytes, and lanes that do not
// slow each other.
double least_seconds(const Problem& problem, const Draft& draft);

// Of every plan of this draft.
Bytes host_bytes(const Problem& problem, const Draft& draft);

// Placement, instructions, simulation and accounts. Not validated.
Plan complete(const Problem& problem, const Draft& draft);
// The same where a placement of at most `capacity` bytes is worth a longer search. It may find none.
Plan complete_within(const Problem& problem, const Draft& draft, Bytes capacity);
// The same with the offsets of lifetimes given.
Plan complete_at(const Problem& problem, const Draft& draft, const std::vector<Bytes>& offsets);

// Its lifetimes, arena and live bytes alone.
Plan place_only(const Problem& problem, const Draft& draft, const std::vector<Bytes>& offsets);

// The op at which most bytes are live.
std::string tightest_op(const Problem& problem, const Draft& draft);

}  // namespace stowage
