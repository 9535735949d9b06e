#include "offload/plan/bound/costs.h"

#include <algorithm>

#include "offload/plan/decisions/op_times.h"
#include "src/graph/cost.h"

namespace stowage {

BoundCosts::BoundCosts(const Problem& problem, const Budget& budget, BoundLinks links)
    : rows_(problem),
      budget_(budget),
      sharing_(problem.sharing),
      cuts_(find_cuts(problem, rows_.ordered() ? share_cuts : 0)) {
  if (links == BoundLinks::apart)
    sharing_.of_in = sharing_.of_out = sharing_.peer_to_h2d = sharing_.peer_to_d2h = 0;
  if (rows_.is_far()) cut_at_last_backward();
}

bool BoundCosts::is_in_last_backward(OpId op) const {
  const Op& of = graph().op(op);
  return of.phase == Phase::backward && graph().micro_batch_of(of.unit) + 1 == graph().micro_batches;
}

// The last micro-batch's backward begins with the last half-block, also with several ranges. Program order
// has all of its ops behind the first one, and so each gradient that it makes.
void BoundCosts::cut_at_last_backward() {
  OpId first = 0;
  while (first < graph().ops.size() && !is_in_last_backward(first)) ++first;
  if (first == graph().ops.size()) return;
  cuts_.updates = {first};
  for (OpId& op : cuts_.gradient_op)
    if (op != no_id && !is_in_last_backward(op)) op = no_id;
}

void BoundCosts::add_fixed_at_cuts(OpId op, bool in_front, ShareCost& fixed) const {
  const double seconds = op_seconds(graph().op(op), machine());
  if (!rows_.is_far()) return cuts_.add_op(op, in_front, seconds, fixed);
  // The ranges before the last one go backward behind it.
  const bool is_before = graph().is_in_last_range(graph().op(op).unit) && !is_in_last_backward(op);
  if (!in_front && !cuts_.updates.empty() && is_before) fixed.back[share_lanes + share_cuts] += seconds;
}

void BoundCosts::add_op(OpId op, ShareTimes& lanes) const {
  const double seconds = op_seconds(graph().op(op), machine());
  lanes.at(index_of(problem().layout.lanes[op])) += seconds;
  if (rows_.is_peer(op)) add_peer_sharing(sharing_, graph().op(op), machine(), lanes);
  if (budget_.device == unlimited || rows_.is_peer(op)) return;
  const auto budget = static_cast<double>(budget_.device);
  auto idle = [&](const Link& link, double shared, double taken) {
    return std::max(0.0, seconds * (1 - shared) - std::max(0.0, budget - taken) / link.bytes_per_second);
  };
  lanes[share_h2d] += idle(machine().h2d, sharing_.of_out + sharing_.peer_to_h2d, rows_.operand_bytes(op));
  lanes[share_d2h] += idle(machine().d2h, sharing_.of_in + sharing_.peer_to_d2h,
                           rows_.bytes_of(rows_.groups(graph().op(op).writes)));
}

void BoundCosts::add_in(Bytes bytes, ShareTimes& lanes) const {
  const double seconds = static_cast<double>(bytes) / machine().h2d.bytes_per_second;
  lanes[share_h2d] += seconds;
  lanes[share_d2h] += seconds * sharing_.of_in;
  lanes[share_host] += static_cast<double>(bytes) * sharing_.host_seconds_per_byte;
}

void BoundCosts::add_out(Bytes bytes, ShareTimes& lanes) const {
  const double seconds = static_cast<double>(bytes) / machine().d2h.bytes_per_second;
  lanes[share_d2h] += seconds;
  lanes[share_h2d] += seconds * sharing_.of_out;
  lanes[share_host] += static_cast<double>(bytes) * sharing_.host_seconds_per_byte;
}

void BoundCosts::add_host(Bytes bytes, ShareCost& cost) const {
  if (has_host_row()) cost.memory.at(host_row()) += static_cast<double>(bytes);
}

}  // namespace stowage
