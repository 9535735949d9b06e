#include "offload/plan/op_times.h"

#include <algorithm>

#include "src/graph/cost.h"

namespace stowage {

OpTimes::OpTimes(const Problem& problem)
    : problem_(problem),
      producer_(problem.graph->tensors.size(), no_id),
      readers_(problem.graph->tensors.size(), 0),
      makes_item_(problem.graph->ops.size(), 0) {
  const Graph& graph = *problem.graph;
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    if (graph.op(op).phase != Phase::forward) continue;
    for (const TensorId id : graph.op(op).writes) producer_[id] = op;
    for (const TensorId id : graph.op(op).reads) ++readers_[id];
  }
  for (const ActivationItem& item : problem.items) makes_item_[item.writer] = 1;
}

void OpTimes::add(OpId op, ShareTimes& lanes) const {
  const Op& of = problem_.graph->op(op);
  lanes.at(lane_of(op)) += op_seconds(of, *problem_.machine);
  if (lane_of(op) == share_peer) add_peer_sharing(problem_.sharing, of, *problem_.machine, lanes);
}

ShareTimes OpTimes::to_rebuild(OpId op) const {
  const Graph& graph = *problem_.graph;
  ShareTimes times{};
  add(op, times);
  for (const TensorId id : graph.op(op).reads) {
    const OpId producer = producer_[id];
    const bool alone = producer != no_id && readers_[id] == 1 && !makes_item_[producer];
    if (!alone || graph.op(producer).unit != graph.op(op).unit) continue;
    const ShareTimes before = to_rebuild(producer);
    for (std::size_t lane = 0; lane < share_lanes; ++lane) times.at(lane) += before.at(lane);
  }
  return times;
}
double OpTimes::seconds_to_rebuild(OpId op) const {
  const ShareTimes times = to_rebuild(op);
  return times[share_compute] + times[share_peer];
}

OpTimes::Remakes OpTimes::no_remakes(const Problem& problem) {
  const std::vector<std::uint8_t> none(problem.items.size(), 0);
  return {none, none};
}

// Of a value that crosses units and the one that it is made of, one must be stored: the latter, where it
// takes longer to rebuild and is not much larger.
OpTimes::Remakes OpTimes::find_remakes() const {
  const std::vector<ActivationItem>& items = problem_.items;
  std::vector<std::uint32_t> item_of(problem_.layout.buckets.size(), no_id);
  for (std::uint32_t i = 0; i < items.size(); ++i)
    for (const BucketId bucket : items[i].buckets) item_of[bucket] = i;
  Remakes found = no_remakes(problem_);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].remaker == no_id) continue;
    const Op& op = problem_.graph->op(items[i].remaker);
    std::vector<std::uint32_t> sources;
    for (const TensorId id : op.reads)
      if (problem_.graph->tensor(id).kind == TensorKind::activation)
        sources.push_back(item_of[problem_.layout.bucket_of[id]]);
    const bool pays = std::all_of(sources.begin(), sources.end(), [&](std::uint32_t source) {
      if (source == no_id) return false;
      const ActivationItem& of = items[source];
      if (!of.rebuildable) return true;
      return of.bytes <= items[i].bytes + items[i].bytes / 4 &&
             op_seconds(op, *problem_.machine) < seconds_to_rebuild(of.writer);
    });
    if (!pays) continue;
    found.remade[i] = 1;
    for (const std::uint32_t source : sources)
      if (items[source].rebuildable) found.stored[source] = 1;
  }
  return found;
}

}  // namespace stowage
