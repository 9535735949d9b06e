#include <algorithm>
#include <cstdint>
#include <vector>

#include "offload/plan/schedule/schedule.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

// By bucket: the host's update of each slice that is updated there, or of the whole bucket, as far as it is
// behind the gate.
std::vector<std::vector<double>> host_updates(const Graph& graph, const Draft& draft,
                                              const BucketLayout& layout, const Machine& machine) {
  std::vector<std::uint8_t> on_device(graph.ops.size(), 0);
  for (const SequenceStep& step : draft.sequence) on_device[step.op] = 1;
  std::vector<std::vector<double>> updates(layout.buckets.size());
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    if (graph.op(op).phase != Phase::update || on_device[op]) continue;
    for (TensorId id : graph.op(op).writes) {
      if (graph.kind_of(id) != TensorKind::parameter) continue;
      if (draft.speculates(layout.bucket_of[id])) continue;
      std::vector<double>& of = updates[layout.bucket_of[id]];
      if (of.empty() || graph.is_slice(id)) of.push_back(0);
      of.back() += host_seconds(graph.op(op), machine);
    }
  }
  return updates;
}

// By bucket: when the host's updates, bucket by bucket in the order of first use, have made it. Of a
// parameter in slices, when its transfers, which then need not wait for one another's updates, may start.
std::vector<double> ready_seconds(const Graph& graph, const Draft& draft, const BucketLayout& layout,
                                  const Machine& machine, const std::vector<double>& h2d) {
  const std::vector<std::vector<double>> updates = host_updates(graph, draft, layout, machine);
  std::vector<double> ready(layout.buckets.size(), 0);
  double now = 0;
  for (BucketId id : layout.parameters) {
    const std::vector<double>& of = updates[id];
    const double first = of.empty() ? now : now + of.front();
    for (const double seconds : of) now += seconds;
    const double all_but_last = of.empty() ? 0 : h2d[id] * (1 - 1 / static_cast<double>(of.size()));
    ready[id] = std::max(first, now - all_but_last);
  }
  return ready;
}

}  // namespace

Durations make_durations(const Graph& graph, const Draft& draft, const BucketLayout& layout,
                         const Machine& machine) {
  Durations durations;
  for (const SequenceStep& step : draft.sequence)
    durations.sequence.push_back(op_seconds(graph.op(step.op), machine));
  for (const Bucket& bucket : layout.buckets) {
    durations.h2d.push_back(machine.h2d.seconds(bucket.bytes));
    durations.d2h.push_back(machine.d2h.seconds(bucket.bytes));
  }
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    if (layout.slices[lifetime.bucket].empty()) continue;
    durations.h2d[lifetime.bucket] = durations.d2h[lifetime.bucket] = 0;
    for (const ByteRange& part : transfers_of(lifetime, layout)) {
      durations.h2d[lifetime.bucket] += machine.h2d.seconds(part.bytes());
      durations.d2h[lifetime.bucket] += machine.d2h.seconds(part.bytes());
    }
  }
  durations.ready = ready_seconds(graph, draft, layout, machine, durations.h2d);
  return durations;
}

}  // namespace stowage
