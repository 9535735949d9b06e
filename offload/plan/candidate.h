// From choices to a plan: lifetimes, schedule, placement, instructions and simulation, pass by pass.
#pragma once

#include <stop_token>

#include "offload/plan/choices.h"
#include "offload/plan/items.h"
#include "offload/plan/lane_sharing.h"
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
  LaneSharing sharing;        // of the machine
  std::stop_token stop;       // PlanOptions::stop
  // Throws Cancelled where that asks for it. Called before every pass; no pass takes more than a fraction of
  // a second.
  void go_on() const;
};
Problem make_problem(const Graph& graph, const Machine& machine, const BucketOptions& options,
                     MicroBatchOrder order = MicroBatchOrder::layer_major, std::stop_token stop = {});

// A scheduled draft before placement.
struct Sketch {
  Draft draft;
  Bytes live_peak_bytes = 0;
};
// Sketches of the same choices under several caps.
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

 private:
  Sketch measured(Draft draft) const;

  const Problem& problem_;
  Draft draft_;
  Durations durations_;
  Bytes serial_bytes_ = 0;
};

// Estimated step time: waits for bytes go by their number, as if any free bytes could be joined, and a
// hundredth more than the sketch's live bytes may be taken.
double estimated_seconds(const Problem& problem, const Sketch& sketch);

// No plan of this draft takes less, wherever its lifetimes stand: no waits for bytes, and lanes that do not
// slow each other.
double least_seconds(const Problem& problem, const Draft& draft);

// Of every plan of this draft.
Bytes host_bytes(const Problem& problem, const Draft& draft);

// Placement, instructions, simulation and accounts. Not validated.
Plan complete(const Problem& problem, const Draft& draft);
// The same with the offsets of lifetimes given.
Plan complete_at(const Problem& problem, const Draft& draft, const std::vector<Bytes>& offsets);

// The op at which most bytes are live.
std::string tightest_op(const Problem& problem, const Draft& draft);

}  // namespace stowage
