#include "offload/recompute/execution_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "stowage/error.h"

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

// Turns of the last range: its first forwards, then backward and forward in turn. The ranges before it go
// forward before them, and backward behind them, one after another.
std::vector<OpId> ahead(const Graph& graph, std::uint64_t forwards) {
  const std::uint64_t parts = graph.micro_batches, ranges = graph.range_begins.size();
  return sorted_by(graph, [&](const Op& op) -> std::uint64_t {
    const std::uint64_t begin = ranges * parts, end = begin + forwards + 2 * parts;
    if (op.phase == Phase::update) return end + begin;
    const std::uint64_t part = graph.micro_batch_of(op.unit), range = graph.range_of(op.unit);
    if (range < ranges)
      return op.phase == Phase::forward ? range * parts + part : end + (ranges - 1 - range) * parts + part;
    if (op.phase == Phase::backward) return begin + forwards + 2 * part;
    return begin + (part < forwards ? part : forwards + 2 * (part - forwards) + 1);
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
  if (!order.is_layer_major) return ahead(graph, order.forwards);
  std::vector<OpId> ops = layer_major(graph);
  if (graph.micro_batches > 1 && is_sound(graph, ops)) return ops;
  std::iota(ops.begin(), ops.end(), 0U);
  return ops;
}

bool is_possible(const Graph& graph, MicroBatchOrder order) {
  if (order.is_layer_major) return true;
  return graph.micro_batches > 1 && order.forwards > 0 && order.forwards <= graph.micro_batches &&
         is_sound(graph, execution_order(graph, order));
}

void require_possible(const Graph& graph, MicroBatchOrder order) {
  if (!is_far_ahead(graph, order) || is_possible(graph, order)) return;
  const std::string_view why = order.forwards == 0 || order.forwards > graph.micro_batches
                                   ? "give 1 to as many as there are"
                                   : "they need one another or share bytes; name another order, or none";
  throw InvalidInput(
      fmt::format("an order of {} forwards before the first backward, for {} micro-batches: {}",
                  order.forwards, graph.micro_batches, why));
}

std::vector<MicroBatchOrder> possible_orders(const Graph& graph) {
  std::vector<MicroBatchOrder> orders{MicroBatchOrder::layer_major};
  if (graph.range_begins.empty() && is_possible(graph, MicroBatchOrder::ahead(1)))
    orders.push_back(MicroBatchOrder::ahead(1));
  return orders;
}

}  // namespace stowage
