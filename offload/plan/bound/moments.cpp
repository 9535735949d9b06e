#include "offload/plan/bound/moments.h"

#include <utility>

namespace stowage {

BoundMoments::BoundMoments(const Problem& problem) : problem_(problem), graph_(*problem.graph) {
  find_turn();
  find_moments();
}

bool BoundMoments::in_front(OpId op) const {
  if (!ordered() || turn_ == no_id) return graph_.op(op).phase == Phase::forward;
  return op < turn_ || (op == turn_ && graph_.op(op).phase == Phase::forward);
}

std::vector<TensorId> BoundMoments::groups(std::vector<TensorId> ids) const {
  for (TensorId& id : ids) id = group_of(id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<TensorId> BoundMoments::operands(OpId op) const {
  std::vector<TensorId> ids = graph_.op(op).reads;
  ids.insert(ids.end(), graph_.op(op).writes.begin(), graph_.op(op).writes.end());
  return groups(std::move(ids));
}

double BoundMoments::bytes_of(const std::vector<TensorId>& ids) const {
  double sum = 0;
  for (TensorId id : ids) sum += static_cast<double>(graph_.tensor(id).bytes());
  return sum;
}

void BoundMoments::find_turn() {
  std::uint32_t unit = no_id;
  for (const Op& op : graph_.ops)
    if (op.phase == Phase::forward) unit = op.unit;
  for (OpId op = 0; op < graph_.ops.size(); ++op)
    if (graph_.op(op).phase != Phase::update && graph_.op(op).unit == unit) keep_larger(turn_, op);
}

void BoundMoments::find_moments() {
  std::size_t ops = 0;
  while (ops < graph_.ops.size() && graph_.op(static_cast<OpId>(ops)).phase != Phase::update) ++ops;
  const std::size_t windows = ordered() ? std::min(most_bound_windows, ops) : 1;
  std::vector<OpId> chosen;
  if (turn_ != no_id) chosen.push_back(turn_);
  for (std::size_t w = 0; w < windows; ++w) {
    OpId largest = no_id;
    for (std::size_t op = w * ops / windows; op < (w + 1) * ops / windows; ++op)
      keep_larger(largest, static_cast<OpId>(op));
    if (largest != no_id) chosen.push_back(largest);
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  for (OpId op : chosen) moments_.push_back({op, operands(op)});
  moments_.push_back({});
}

}  // namespace stowage
