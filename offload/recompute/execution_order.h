// The order in which the compute lane goes through the micro-batches of a step. Pure functions of the graph.
#pragma once

#include <vector>

#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage {

// Returns all ops of the graph in this order, update ops last. In layer_major and ahead(1) each micro-batch
// of the last half-block goes from forward to backward at once, so that none of its activations need be kept
// or rebuilt. If micro-batches need one another's forward, layer_major is program order instead.
std::vector<OpId> execution_order(const Graph& graph, MicroBatchOrder order);

// Returns whether the graph can be executed in this order. Only layer_major is always possible: `ahead` needs
// several micro-batches, no fewer than its forwards, and no op that would come before an op whose result it
// reads, or before an op that reads a tensor that it overwrites.
bool is_possible(const Graph& graph, MicroBatchOrder order);
// Throws InvalidInput if the graph cannot be executed in an order of two forwards or more. An ahead(1) that
// is not possible stands for layer_major.
void require_possible(const Graph& graph, MicroBatchOrder order);
// True for the orders that no policy chooses by itself.
inline bool is_far_ahead(MicroBatchOrder order) { return !order.is_layer_major && order.forwards != 1; }
// Returns those of layer_major and ahead(1) that are possible.
std::vector<MicroBatchOrder> possible_orders(const Graph& graph);

}  // namespace stowage
