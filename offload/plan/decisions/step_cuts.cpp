#include "offload/plan/decisions/step_cuts.h"

#include <algorithm>
#include <numeric>

#include "src/graph/cost.h"

namespace stowage {
namespace {

// Seconds by op: of the op itself; of the updates of parameters that it is the first to read; and of the
// early updates and offloads of gradients that it completes.
struct Work {
  std::vector<double> forward, backward, updates, early_updates, offloads;
};

Work work_of(const Problem& problem, const StepCuts& cuts) {
  const Graph& graph = *problem.graph;
  const std::size_t ops = graph.ops.size();
  Work work{std::vector<double>(ops, 0), std::vector<double>(ops, 0), std::vector<double>(ops, 0),
            std::vector<double>(ops, 0), std::vector<double>(ops, 0)};
  for (OpId op = 0; op < ops; ++op) {
    const Op& of = graph.op(op);
    if (problem.layout.lanes[op] == LaneRole::peer) continue;
    if (of.phase == Phase::forward) work.forward[op] = op_seconds(of, *problem.machine);
    if (of.phase == Phase::backward) work.backward[op] = op_seconds(of, *problem.machine);
    if (of.phase != Phase::update) continue;
    for (TensorId id : of.writes) {
      const TensorId whole = graph.whole_of(id);
      if (graph.kind_of(id) != TensorKind::parameter || cuts.first_read[whole] == no_id) continue;
      work.updates[cuts.first_read[whole]] += host_seconds(of, *problem.machine);
      if (cuts.gradient_op[whole] == no_id) continue;
      work.offloads[cuts.gradient_op[whole]] +=
          static_cast<double>(graph.tensor(id).bytes()) / problem.machine->d2h.bytes_per_second;
      if (undo_bytes(graph, of) > 0) work.early_updates[cuts.gradient_op[whole]] += problem.early_seconds(of);
    }
  }
  return work;
}

// Finds up to `most` ops at which a phase in two pieces is longest, while a fraction of the pieces' movable
// work falls from 1. `of(op, share)`: the length with a cut at `op` and that fraction.
template <typename Length>
std::vector<OpId> longest(std::size_t ops, std::size_t most, Length&& of) {
  constexpr int tries = 40;
  constexpr double fall = 0.9;
  std::vector<OpId> all;
  double share = 1;
  for (int i = 0; i < tries; ++i, share *= fall) {
    OpId at = 0;
    double longest_seconds = of(at, share);
    for (OpId op = 1; op < ops; ++op)
      if (const double length = of(op, share); length > longest_seconds) {
        longest_seconds = length;
        at = op;
      }
    if (std::find(all.begin(), all.end(), at) == all.end()) all.push_back(at);
  }
  std::vector<OpId> chosen;
  const std::size_t count = std::min(most, all.size());
  for (std::size_t c = 0; c < count; ++c)
    chosen.push_back(all[count == 1 ? 0 : c * (all.size() - 1) / (count - 1)]);
  return chosen;
}

std::vector<double> sums(std::vector<double> of) {
  std::partial_sum(of.begin(), of.end(), of.begin());
  return of;
}

}  // namespace

void StepCuts::add_op(OpId op, bool in_front, double seconds, ShareCost& fixed) const {
  for (std::size_t c = 0; c < front.size(); ++c)
    if (in_front && op > front[c]) fixed.front[share_lanes + c] += seconds;
  for (std::size_t c = 0; c < back.size(); ++c)
    if (!in_front && op < back[c]) fixed.back[share_lanes + c] += seconds;
  for (std::size_t c = 0; c < updates.size(); ++c)
    if (!in_front && op < updates[c]) fixed.back[share_lanes + share_cuts + c] += seconds;
}

void StepCuts::cut_front(const Problem& problem, const std::vector<double>& host) {
  if (front.empty() || front.size() == share_cuts) return;
  const std::vector<double> before = sums(host), forward = sums(work_of(problem, *this).forward);
  const auto length = [&](OpId op, double) { return before[op] + forward.back() - forward[op]; };
  const OpId at = longest(before.size(), 1, length).front();
  if (std::find(front.begin(), front.end(), at) == front.end()) front.push_back(at);
}

void StepCuts::add_before(OpId op, double seconds, ShareCost& cost) const {
  for (std::size_t c = 0; c < front.size(); ++c)
    if (op <= front[c]) cost.front[share_lanes + c] += seconds;
}

void StepCuts::add_update(TensorId parameter, double seconds, ShareCost& cost) const {
  add_before(first_read[parameter], seconds, cost);
}

void StepCuts::add_early_update(TensorId parameter, double seconds, ShareCost& cost) const {
  for (std::size_t c = 0; c < updates.size(); ++c)
    if (gradient_op[parameter] != no_id && gradient_op[parameter] >= updates[c])
      cost.back[share_lanes + share_cuts + c] += seconds;
}

void StepCuts::add_offload(TensorId parameter, double seconds, ShareCost& cost) const {
  for (std::size_t c = 0; c < back.size(); ++c)
    if (gradient_op[parameter] != no_id && gradient_op[parameter] >= back[c])
      cost.back[share_lanes + c] += seconds;
}

StepCuts find_cuts(const Problem& problem, std::size_t count) {
  const Graph& graph = *problem.graph;
  StepCuts cuts;
  cuts.first_read.assign(graph.tensors.size(), no_id);
  cuts.gradient_op.assign(graph.tensors.size(), no_id);
  std::vector<OpId> made_by(graph.tensors.size(), no_id);
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    const Op& of = graph.op(op);
    for (TensorId id : of.reads)
      if (cuts.first_read[id] == no_id && of.phase != Phase::update) cuts.first_read[id] = op;
    for (TensorId id : of.writes)
      if (of.phase != Phase::update) made_by[id] = op;
    if (of.phase != Phase::update) continue;
    for (TensorId id : of.reads)
      if (graph.kind_of(id) == TensorKind::gradient)
        for (TensorId parameter : of.writes)
          cuts.gradient_op[graph.whole_of(parameter)] = made_by[graph.whole_of(id)];
  }
  if (count == 0 || !problem.analysis.order.is_layer_major) return cuts;
  const Work work = work_of(problem, cuts);
  const std::vector<double> forward = sums(work.forward), backward = sums(work.backward),
                            updates = sums(work.updates), offloads = sums(work.offloads),
                            early_updates = sums(work.early_updates);
  cuts.front = longest(graph.ops.size(), count, [&](OpId op, double share) {
    return share * updates[op] + forward.back() - forward[op];
  });
  const auto in_back = [&](const std::vector<double>& made_at, const std::vector<double>& sum,
                           std::size_t most) {
    return longest(graph.ops.size(), most, [&](OpId op, double share) {
      return backward[op] - work.backward[op] + share * (sum.back() - sum[op] + made_at[op]);
    });
  };
  cuts.back = in_back(work.offloads, offloads, count);
  if (early_updates.back() > 0)
    cuts.updates = in_back(work.early_updates, early_updates, std::min(count, update_cuts));
  return cuts;
}

}  // namespace stowage
