#include "offload/recompute/execution_order.h"

#include <algorithm>
#include <numeric>

namespace stowage {
namespace {

// By op: its place in the order.
std::vector<std::size_t> places_of(const std::vector<OpId>& order) {
  std::vector<std::size_t> place(order.size());
  for (std::size_t p = 0; p < order.size(); ++p) place[order[p]] = p;
  return place;
}

// That program order is sound is the graph's own contract. So an order is when no two ops that share a
// tensor, of which one writes or overwrites it, have changed places.
bool is_sound(const Graph& graph, const std::vector<OpId>& order) {
  const std::vector<std::size_t> place = places_of(order);
  std::vector<OpId> producer(graph.tensors.size(), no_id);
  std::vector<std::size_t> last_read(graph.tensors.size(), 0);  // place
  for (OpId op = 0; op < graph.ops.size(); ++op) {
    for (TensorId id : graph.op(op).reads) {
      if (producer[id] != no_id && place[producer[id]] > place[op]) return false;
      last_read[id] = std::max(last_read[id], place[op]);
    }
    for (TensorId id : graph.op(op).writes) producer[id] = op;
  }
  for (OpId op = 0; op < graph.ops.size(); ++op)
    for (const Alias& alias : graph.op(op).may_alias)
      if (last_read[graph.op(op).reads[alias.read]] > place[op]) return false;
  return true;
}

}  // namespace

std::vector<OpId> execution_order(const Graph& graph, MicroBatchOrder order) {
  std::vector<OpId> ops(graph.ops.size());
  std::iota(ops.begin(), ops.end(), 0U);
  if (order == MicroBatchOrder::layer_major) return ops;
  const auto part = [&](OpId op) {
    const Op& of = graph.op(op);
    return of.phase == Phase::update ? graph.micro_batches : graph.micro_batch_of(of.unit);
  };
  std::stable_sort(ops.begin(), ops.end(), [&](OpId a, OpId b) { return part(a) < part(b); });
  return ops;
}

std::vector<MicroBatchOrder> possible_orders(const Graph& graph) {
  std::vector<MicroBatchOrder> orders{MicroBatchOrder::layer_major};
  if (graph.micro_batches > 1 && is_sound(graph, execution_order(graph, MicroBatchOrder::batch_major)))
    orders.push_back(MicroBatchOrder::batch_major);
  return orders;
}

}  // namespace stowage
