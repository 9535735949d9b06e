// In which order the compute lane goes through the micro-batches of a step. Pure functions of the graph.
#pragma once

#include <vector>

#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage {

// All ops of the graph, update ops last, in this order. In both, each micro-batch of the last half-block goes
// from forward to backward at once, so that nothing of it need be kept or rebuilt; in layer_major that is
// left, and program order taken, where micro-batches need one another's forward.
std::vector<OpId> execution_order(const Graph& graph, MicroBatchOrder order);

// The orders that the graph can be executed in, layer_major first. One micro-batch has one order. Of several,
// batch_major is left out where some op would come before one whose result it reads, or before one that
// reads what it overwrites.
std::vector<MicroBatchOrder> possible_orders(const Graph& graph);

}  // namespace stowage
