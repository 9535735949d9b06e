#include "offload/plan/step_cuts.h"

#include <algorithm>
#include <array>

#include "src/graph/cost.h"

namespace stowage {
namespace {

// Shares of the parameters' bytes that are on the host.
constexpr std::array<double, share_cuts> host_shares{1, 0.7, 0.4, 0.2};

// By op: what stands at it.
struct Work {
  std::vector<double> forward, backward, updates, offloads;
};

Work work_of(const Problem& problem, const StepCuts& cuts) {
  const Graph& graph = *problem.graph;
  const std::size_t ops = graph.ops.size();
  Work work{std::vector<double>(ops, 0), std::vector<double>(ops, 0), std::vector<double>(ops, 0),
            std::vector<double>(ops, 0)};
  for (OpId op = 0; op < ops; ++op) {
    const Op& of = graph.op(op);
    if (of.phase == Phase::forward) work.forward[op] = op_seconds(of, *problem.machine);
    if (of.phase == Phase::backward) work.backward[op] = op_seconds(of, *problem.machine);
    if (of.phase != Phase::update) continue;
    for (TensorId id : of.writes) {
      if (graph.tensor(id).kind != TensorKind::parameter || cuts.first_read[id] == no_id) continue;
      work.updates[cuts.first_read[id]] += host_seconds(of, *problem.machine);
      if (cuts.gradient_op[id] != no_id)
        work.offloads[cuts.gradient_op[id]] +=
            static_cast<double>(graph.tensor(id).bytes()) / problem.machine->d2h.bytes_per_second;
    }
  }
  return work;
}

// Each op once, with most of `before` up to it, weighted, and of `behind` after it.
std::vector<OpId> largest(const std::vector<double>& before, const std::vector<double>& behind,
                          bool weigh_before) {
  std::vector<OpId> chosen;
  for (const double share : host_shares) {
    double total = 0;
    for (const double seconds : behind) total += (weigh_before ? 1 : share) * seconds;
    double most = -1, so_far = 0;
    OpId at = 0;
    for (OpId op = 0; op < before.size(); ++op) {
      // The front's cut is behind the op's updates, the back's before the op.
      if (weigh_before) so_far += share * before[op];
      if (weigh_before) total -= behind[op];
      if (so_far + total > most) {
        most = so_far + total;
        at = op;
      }
      if (!weigh_before) so_far += before[op];
      if (!weigh_before) total -= share * behind[op];
    }
    if (std::find(chosen.begin(), chosen.end(), at) == chosen.end()) chosen.push_back(at);
  }
  return chosen;
}

}  // namespace

void StepCuts::add_op(OpId op, bool in_front, double seconds, ShareCost& fixed) const {
  for (std::size_t c = 0; c < front.size(); ++c)
    if (in_front && op > front[c]) fixed.front[share_lanes + c] += seconds;
  for (std::size_t c = 0; c < back.size(); ++c)
    if (!in_front && op < back[c]) fixed.back[share_lanes + c] += seconds;
}

void StepCuts::add_before(OpId op, double seconds, ShareCost& cost) const {
  for (std::size_t c = 0; c < front.size(); ++c)
    if (op <= front[c]) cost.front[share_lanes + c] += seconds;
}

void StepCuts::add_host_update(TensorId parameter, double update, double offload, ShareCost& cost) const {
  add_before(first_read[parameter], update, cost);
  for (std::size_t c = 0; c < back.size(); ++c)
    if (gradient_op[parameter] != no_id && gradient_op[parameter] >= back[c])
      cost.back[share_lanes + c] += offload;
}

StepCuts find_cuts(const Problem& problem) {
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
      if (graph.tensor(id).kind == TensorKind::gradient)
        for (TensorId parameter : of.writes) cuts.gradient_op[parameter] = made_by[id];
  }
  if (problem.analysis.order != MicroBatchOrder::layer_major) return cuts;
  const Work work = work_of(problem, cuts);
  cuts.front = largest(work.updates, work.forward, true);
  cuts.back = largest(work.backward, work.offloads, false);
  return cuts;
}

}  // namespace stowage
