// Stages of a pipeline: each runs one range, or several, of consecutive half-blocks of a training step,
// forward and backward.
//
// A stage is a graph, so that the planner can say what one device needs for it, keeps, offloads and rebuilds.
// No program here runs the stages of a model together yet.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/graph.h"

namespace stowage {

// Half-blocks [first, last).
struct HalfBlocks {
  std::uint32_t first = 0, last = 0;
  friend bool operator==(const HalfBlocks&, const HalfBlocks&) = default;
};

// Returns the step of these ranges of half-blocks: all of the graph's ops with these half-blocks, and the
// updates of their parameters. All half-blocks in one range are the graph itself.
// - A value that another stage makes is *received* (`receive`, launch_table.h), one op for each micro-batch
//   that reads it; one that another stage reads is *sent*. Both are ops of the peer lane. Backward begins at
//   received gradients. Values of a whole step, such as a table, are received once.
// - A parameter that several stages use belongs to the one with its first half-block. The others receive its
//   values and send their part of its gradient.
// - Every stage receives the parts of the norm of all others, so that each clips by the whole norm.
// - The stage of the last half-block alone has the loss; Graph::loss of the others is no_id.
// Stages are to be run ahead(w) (MicroBatchOrder) with w no greater than in any stage before: stage s of p
// ahead(min(micro-batches, p - s)), for one. Then no two stages wait for each other, whatever the partition,
// if each has as many ranges, and range r of stage s is number r p + s of all. All micro-batches go through a
// range before the next one begins, but for the last range of each stage (Lamy-Poirier, Breadth-First
// Pipeline Parallelism, MLSys 2023), so a range's parameters come in once for all of them, and its gradients
// are whole while ranges before it have backward left. Throws InvalidInput for ranges that are empty,
// impossible or not rising, and for a graph without an update phase.
Graph stage_of(const Graph& graph, const std::vector<HalfBlocks>& ranges);

}  // namespace stowage
