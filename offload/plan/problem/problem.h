// Problem: what is the same for all candidates of one graph on one machine.
#pragma once

#include <stop_token>

#include "offload/plan/problem/buckets.h"
#include "offload/plan/problem/choices.h"
#include "offload/plan/problem/items.h"
#include "offload/plan/problem/lane_speeds.h"
#include "stowage/machine.h"

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
  EarlyUpdates early_updates = EarlyUpdates::undoable;
  // How fast lanes are beside one another on this machine; computed once, used by all plans.
  LaneSharing sharing;
  LaneSpeeds speeds{Machine{}};
  Machine contended;     // with both directions of the link at work (lane_speeds.h)
  std::stop_token stop;  // PlanOptions::stop
  // Of an update on the host before the gate.
  double early_seconds(const Op& update) const;
  // Throws Cancelled where that asks for it. Called before every pass; no pass takes more than a fraction of
  // a second.
  void throw_if_cancelled() const;
};
Problem make_problem(const Graph& graph, const Machine& machine, const BucketOptions& options,
                     MicroBatchOrder order = MicroBatchOrder::layer_major, std::stop_token stop = {},
                     EarlyUpdates early_updates = EarlyUpdates::undoable);

}  // namespace stowage
