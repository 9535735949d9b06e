#include "offload/plan/problem/problem.h"

#include <utility>

#include "offload/plan/problem/byte_groups.h"
#include "src/graph/cost.h"
#include "stowage/error.h"

namespace stowage {

Problem make_problem(const Graph& graph, const Machine& machine, const BucketOptions& options,
                     MicroBatchOrder order, std::stop_token stop, EarlyUpdates early_updates) {
  Problem problem;
  problem.graph = &graph;
  problem.machine = &machine;
  problem.sharing = sharing_of(machine);
  problem.speeds = LaneSpeeds(machine);
  problem.contended = with_link_contention(machine);
  problem.stop = std::move(stop);
  problem.early_updates = early_updates;
  problem.throw_if_cancelled();
  problem.analysis = analyse_recompute(graph, order);
  problem.layout = make_buckets(graph, byte_groups(graph, problem.analysis), options);
  problem.items = activation_items(graph, problem.analysis, problem.layout);
  problem.sizes.resize(problem.layout.buckets.size());
  for (BucketId id = 0; id < problem.sizes.size(); ++id)
    problem.sizes[id].bytes = problem.layout.buckets[id].bytes;
  problem.undo_bytes.assign(problem.sizes.size(), 0);
  for (const Op& op : graph.ops)
    if (const Bytes bytes = undo_bytes(graph, op))
      problem.undo_bytes[problem.layout.bucket_of[op.writes.front()]] += bytes;
  return problem;
}

double Problem::early_seconds(const Op& update) const {
  return early_updates == EarlyUpdates::final ? host_seconds(update, *machine)
                                              : undoable_seconds(*graph, update, *machine);
}

void Problem::throw_if_cancelled() const {
  if (stop.stop_requested()) throw Cancelled("planning was asked to end; ask again for a plan");
}

}  // namespace stowage
