// From choices to a plan: lifetimes, schedule, placement, instructions and simulation, pass by pass.
#pragma once

#include <stop_token>

#include "offload/plan/choices.h"
#include "offload/plan/items.h"
#include "offload/plan/lane_sharing.h"
#include "offload/plan/lane_speeds.h"
#include "offload/plan/lifetimes.h"
#include "offload/plan/schedule.h"
#include "stowage/planner.h"

namespace stowage {

// The graph, the machine and all that the planner derives from them before it chooses anything. Candidates
// share it. Graph and machine are not owned and must outlive it.
struct Problem {
  const Graph* graph = nullptr;
  const Machine* machine = nullptr;
  RecomputeAnalysis analysis;
  BucketLayout layout;
  std::vector<ActivationItem> items;
  std::vector<Bucket> sizes;  // the layout's buckets with nothing but their bytes, cheap to copy
  // By parameter bucket: undo records if its updates on the host are speculated. 0 where they cannot begin
  // before the gate.
  std::vector<Bytes> undo_bytes;
  // How fast lanes are beside one another on this machine; computed once, used by all plans.
  LaneSharing sharing;
  LaneSpeeds speeds{Machine{}};
  Machine beside;        // with both directions of the link at work (lane_speeds.h)
  std::stop_token stop;  // PlanOptions::stop
  // Of an update on the host before the gate.
  double early_seconds(const Op& update) const;
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
// Sketches of the same choices under several caps. Keeps a reference to the problem.
class Sketcher {
 public:
  Sketcher(const Problem& problem, const Choices& choices, const Handicaps& handicaps = {});
  // Live bytes of the serial sketch: no sketch has fewer.
  Bytes serial_bytes() const { return serial_bytes_; }
  Sketch serial() const;
  // With at most `cap` live bytes, or as many as the serial sketch has where those are more. `gathers_ahead`:
  // as make_lifetimes takes it, where the cap has room for that.
  Sketch within(Bytes cap, std::uint32_t gathers_ahead) const;
  // With no more transfers ahead of use, whatever their bytes; 0: serial.
  Sketch ahead(std::uint32_t distance) const;

 private:
  Sketch measured(Draft draft) const;

  Durations durations_of(const Draft& draft) const;

  const Problem& problem_;
  Choices choices_;
  Draft draft_;
  Durations durations_;
  Bytes serial_bytes_ = 0;
};

// Estimated step time. Who needs bytes waits until enough are free, ignoring fragmentation, out of a
// hundredth more than the sketch's live bytes.
double estimated_seconds(const Problem& problem, const Sketch& sketch);

// Seconds. No plan of this draft takes less, wherever its lifetimes stand: counted without waits for bytes,
// and with lanes that do not slow each other.
double least_seconds(const Problem& problem, const Draft& draft);

// Host bytes that every plan of this draft takes.
Bytes host_bytes(const Problem& problem, const Draft& draft);

// Placement, instructions, simulation and accounts. Not validated.
Plan complete(const Problem& problem, const Draft& draft);
// The same with the offsets of lifetimes given.
Plan complete_at(const Problem& problem, const Draft& draft, const std::vector<Bytes>& offsets);

// The op at which most bytes are live.
std::string tightest_op(const Problem& problem, const Draft& draft);

}  // namespace stowage
