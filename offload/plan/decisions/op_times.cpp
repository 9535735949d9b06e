#include "offload/plan/decisions/op_times.h"

#include <algorithm>

#include "src/graph/cost.h"

namespace stowage {

OpTimes::OpTimes(const Problem& problem)
    : problem_(problem),
      producer_(problem.graph->tensors.size(), no_id),
      rebuild_(problem.graph->ops.size(), ShareTimes{}) {
  const Graph& graph = *problem.graph;
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    if (graph.op(op).phase != Phase::forward) continue;
    for (const TensorId id : graph.op(op).writes) producer_[id] = op;
  }
  find_rebuilding();
}

void OpTimes::add(OpId op, ShareTimes& lanes) const {
  const Op& of = problem_.graph->op(op);
  lanes.at(lane_of(op)) += op_seconds(of, *problem_.machine);
  if (lane_of(op) == share_peer) add_peer_sharing(problem_.sharing, of, *problem_.machine, lanes);
}

void OpTimes::find_rebuilding() {
  const Graph& graph = *problem_.graph;
  std::vector<double> bytes(graph.ops.size(), 0);  // by op: bytes of the rebuildable items that it makes
  std::vector<std::uint8_t> makes_item(graph.ops.size(), 0);
  for (const ActivationItem& item : problem_.items) {
    makes_item[item.writer] = 1;
    if (item.rebuildable) bytes[item.writer] += static_cast<double>(item.bytes);
  }
  // By op without items: the ops whose items need it.
  std::vector<std::vector<OpId>> needed_by(graph.ops.size());
  std::vector<OpId> seen_for(graph.ops.size(), no_id);
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    if (bytes[op] == 0) continue;
    add(op, rebuild_[op]);
    std::vector<OpId> left{op};
    while (!left.empty()) {
      const OpId next = left.back();
      left.pop_back();
      for (const TensorId id : graph.op(next).reads) {
        const OpId producer = producer_[id];
        if (producer == no_id || producer >= next || makes_item[producer] || seen_for[producer] == op ||
            graph.op(producer).unit != graph.op(op).unit)
          continue;
        seen_for[producer] = op;
        needed_by[producer].push_back(op);
        left.push_back(producer);
      }
    }
  }
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    double all = 0;
    for (const OpId by : needed_by[op]) all += bytes[by];
    ShareTimes times{};
    if (all > 0) add(op, times);
    for (const OpId by : needed_by[op])
      for (std::size_t lane = 0; lane < share_lanes; ++lane)
        rebuild_[by].at(lane) += times.at(lane) * bytes[by] / all;
  }
}

ShareTimes OpTimes::to_rebuild(OpId op) const { return rebuild_[op]; }
double OpTimes::seconds_to_rebuild(OpId op) const {
  const ShareTimes times = to_rebuild(op);
  return times[share_compute] + times[share_peer];
}

OpTimes::Remakes OpTimes::no_remakes(const Problem& problem) {
  const std::vector<std::uint8_t> none(problem.items.size(), 0);
  return {none, none};
}

// Either a value that crosses units or its source must be stored. The source is stored and the value remade
// if the source takes longer to rebuild and is at most a quarter larger.
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

void add_peer_sharing(const LaneSharing& sharing, const Op& op, const Machine& machine, ShareTimes& lanes) {
  const double seconds = peer_seconds(op, machine);
  lanes[share_h2d] += seconds * sharing.peer_to_h2d;
  lanes[share_d2h] += seconds * sharing.peer_to_d2h;
  lanes[share_host] += seconds * sharing.peer_to_host;
}

}  // namespace stowage
