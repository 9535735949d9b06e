// The order in which the compute lane goes through the micro-batches of a step. Pure functions of the graph.
#pragma once

#include <vector>

#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage {

// Returns all ops of the graph in this order, update ops last. In layer_major and ahead(1) each micro-batch
// of the last half-block goes from forward to backward at once, so that none of its activations need be kept
// or rebuilt. If micro-batches need one another's forward, layer_major is program order instead. Of several
// ranges (Graph::range_begins), `ahead` is the order of the last one. Those before it go forward before its
// first forward, each with all micro-batches, and backward behind its last backward, the last one first.
std::vector<OpId> execution_order(const Graph& graph, MicroBatchOrder order);

// Returns whether the graph can be executed in this order. Only layer_major is always possible: `ahead` needs
// several micro-batches, no fewer than its forwards, and no op that would come before an op whose result it
// reads, or before an op that reads a tensor that it overwrites.
bool is_possible(const Graph& graph, MicroBatchOrder order);
// Throws InvalidInput if is_far_ahead, and the graph cannot be executed in this order. Any other ahead(1)
// that is not possible stands for layer_major.
void require_possible(const Graph& graph, MicroBatchOrder order);
// True for the orders that no policy chooses by itself: `ahead` of two forwards or more, or of several
// ranges. All forwards of earlier ranges, and so many of the last one, come before the first backward.
inline bool is_far_ahead(const Graph& graph, MicroBatchOrder order) {
  return !order.is_layer_major && (order.forwards != 1 || !graph.range_begins.empty());
}
// Returns whether `ahead` has the unit's forward before the first backward.
inline bool is_before_first_backward(const Graph& graph, MicroBatchOrder order, std::uint32_t unit) {
  return !graph.is_in_last_range(unit) || graph.micro_batch_of(unit) < order.forwards;
}
// Returns those of layer_major and ahead(1) that are possible; for several ranges, layer_major.
std::vector<MicroBatchOrder> possible_orders(const Graph& graph);

}  // namespace stowage
