#include "offload/plan/bound/rows.h"

#include <utility>

namespace stowage {

BoundRows::BoundRows(const Problem& problem) : problem_(problem), graph_(*problem.graph) {
  find_turn();
  find_rows();
}

bool BoundRows::in_front(OpId op) const {
  if (!ordered() || turn_ == no_id) {
    const Op& of = graph_.op(op);
    if (is_far() && turn_ != no_id && of.phase == Phase::backward)
      return op < turn_ && of.unit == graph_.op(turn_).unit;  // backward begins with the turn's unit
    return of.phase == Phase::forward &&
           (!is_far() || is_before_first_backward(graph_, problem_.analysis.order, of.unit));
  }
  return op < turn_ || (op == turn_ && graph_.op(op).phase == Phase::forward);
}

std::uint32_t BoundRows::turns() const {
  const std::uint32_t together = is_far() ? problem_.analysis.order.forwards : 1;
  return (graph_.micro_batches + together - 1) / together;
}

std::vector<TensorId> BoundRows::groups(std::vector<TensorId> ids) const {
  for (TensorId& id : ids) id = group_of(id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<TensorId> BoundRows::operands(OpId op) const {
  std::vector<TensorId> ids = graph_.op(op).reads;
  ids.insert(ids.end(), graph_.op(op).writes.begin(), graph_.op(op).writes.end());
  return groups(std::move(ids));
}

double BoundRows::bytes_of(const std::vector<TensorId>& ids) const {
  double sum = 0;
  for (TensorId id : ids) sum += static_cast<double>(graph_.tensor(id).bytes());
  return sum;
}

void BoundRows::find_turn() {
  std::uint32_t unit = no_id;
  for (const Op& op : graph_.ops)
    if (op.phase == Phase::forward) unit = op.unit;
  if (is_far()) unit -= graph_.micro_batches - 1;
  for (OpId op = 0; op < graph_.ops.size(); ++op) {
    const Op& of = graph_.op(op);
    if (of.unit == unit && (is_far() ? of.phase == Phase::backward : of.phase != Phase::update))
      keep_larger(turn_, op);
  }
}

void BoundRows::find_rows() {
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
  for (OpId op : chosen) rows_.push_back({op, operands(op)});
  rows_.push_back({});
}

}  // namespace stowage
