// The order in which the compute lane goes through the micro-batches of a step. Pure functions of the graph.
#pragma once

#include <vector>

#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage {

// Returns all ops of the graph in this order, update ops last. In both orders each micro-batch of the last
// half-block goes from forward to backward at once, so that none of its activations need be kept or rebuilt.
// If micro-batches need one another's forward, layer_major is program order instead.
std::vector<OpId> execution_order(const Graph& graph, MicroBatchOrder order);

// Returns the orders in which the graph can be executed, layer_major first. A graph of one micro-batch has
// one order. With several micro-batches, batch_major is left out if an op would come before an op whose
// result it reads, or before an op that reads a tensor that it overwrites.
std::vector<MicroBatchOrder> possible_orders(const Graph& graph);

}  // namespace stowage
