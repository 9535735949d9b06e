// Problem: everything that is the same for all candidates of one graph on one machine.
#pragma once

#include <stop_token>

#include "offload/plan/problem/buckets.h"
#include "offload/plan/problem/choices.h"
#include "offload/plan/problem/items.h"
#include "offload/plan/problem/lane_speeds.h"
#include "stowage/machine.h"

namespace stowage {

// The graph, the machine and everything that the planner derives from them before it chooses anything.
// Candidates share it. Does not own the graph and the machine, which must outlive it.
struct Problem {
  const Graph* graph = nullptr;
  const Machine* machine = nullptr;
  RecomputeAnalysis analysis;
  BucketLayout layout;
  std::vector<ActivationItem> items;
  std::vector<Bucket> sizes;  // the layout's buckets with nothing but their bytes, cheap to copy
  // Indexed by bucket: bytes of the undo records if a parameter bucket's host updates are speculated; 0 if
  // its updates cannot be early.
  std::vector<Bytes> undo_bytes;
  // The lanes' speeds beside one another on this machine (lane_speeds.h), computed once for all plans.
  LaneSharing sharing;
  LaneSpeeds speeds{Machine{}};
  Machine contended;     // *machine with_link_contention (lane_speeds.h)
  std::stop_token stop;  // PlanOptions::stop
  // Returns the seconds of an early update on the host.
  double early_seconds(const Op& update) const;
  // Throws Cancelled if `stop` asks for it. Called before every pass; no pass takes more than a fraction
  // of a second.
  void throw_if_cancelled() const;
};
Problem make_problem(const Graph& graph, const Machine& machine, const BucketOptions& options,
                     MicroBatchOrder order = MicroBatchOrder::layer_major, std::stop_token stop = {});

}  // namespace stowage
