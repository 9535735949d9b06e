#include "offload/recompute/execution_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace stowage {
namespace {

// Returns, by op, its place in the order.
std::vector<std::size_t> places_of(const std::vector<OpId>& order) {
  std::vector<std::size_t> place(order.size());
  for (std::size_t p = 0; p < order.size(); ++p) place[order[p]] = p;
  return place;
}

// Program order is sound by the graph's own contract. Another order is sound if no two ops have changed
// places that share a tensor which one of the two writes or overwrites.
bool is_sound(const Graph& graph, const std::vector<OpId>& order) {
  const std::vector<std::size_t> place = places_of(order);
  std::vector<OpId> producer(graph.tensors.size(), no_id);
  std::vector<std::size_t> last_read(graph.tensors.size(), 0);  // place of the last op that reads the tensor
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    for (TensorId id : graph.op(op).reads) {
      const OpId maker = producer[graph.whole_of(id)];
      if (maker != no_id && place[maker] > place[op]) return false;
      last_read[id] = std::max(last_read[id], place[op]);
    }
    for (TensorId id : graph.op(op).writes) producer[id] = op;
  }
  for (OpId op = 0; op < graph.ops.size(); ++op)
    for (const Alias& alias : graph.op(op).may_alias)
      if (last_read[graph.op(op).reads[alias.read]] > place[op]) return false;
  return true;
}

// Returns program order, stably sorted by the keys of the ops.
template <class Key>
std::vector<OpId> sorted_by(const Graph& graph, Key key) {
  std::vector<OpId> ops(graph.ops.size());
  std::iota(ops.begin(), ops.end(), 0U);
  std::stable_sort(ops.begin(), ops.end(),
                   [&](OpId a, OpId b) { return key(graph.op(a)) < key(graph.op(b)); });
  return ops;
}

std::vector<OpId> batch_major(const Graph& graph) {
  return sorted_by(graph, [&](const Op& op) {
    return op.phase == Phase::update ? graph.micro_batches : graph.micro_batch_of(op.unit);
  });
}

// In the last half-block each micro-batch turns from forward to backward at once.
std::vector<OpId> layer_major(const Graph& graph) {
  const auto half_blocks = static_cast<std::uint32_t>(graph.unit_names.size()) / graph.micro_batches;
  return sorted_by(graph, [&](const Op& op) {
    if (op.phase == Phase::update) return std::pair(3U, 0U);
    if (graph.half_block_of(op.unit) + 1 == half_blocks) return std::pair(1U, graph.micro_batch_of(op.unit));
    return std::pair(op.phase == Phase::forward ? 0U : 2U, 0U);
  });
}

}  // namespace

std::vector<OpId> execution_order(const Graph& graph, MicroBatchOrder order) {
  if (order == MicroBatchOrder::batch_major) return batch_major(graph);
  std::vector<OpId> ops = layer_major(graph);
  if (graph.micro_batches > 1 && is_sound(graph, ops)) return ops;
  std::iota(ops.begin(), ops.end(), 0U);
  return ops;
}

std::vector<MicroBatchOrder> possible_orders(const Graph& graph) {
  std::vector<MicroBatchOrder> orders{MicroBatchOrder::layer_major};
  if (graph.micro_batches > 1 && is_sound(graph, execution_order(graph, MicroBatchOrder::batch_major)))
    orders.push_back(MicroBatchOrder::batch_major);
  return orders;
}

}  // namespace stowage
