// What each half-block keeps for its backward pass, and what it takes to rebuild that instead.
//
// Chen et al., "Training Deep Nets with Sublinear Memory Cost" (section 4), with units as segments.
// Pure functions of the graph and the order in which it is executed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "offload/recompute/execution_order.h"
#include "stowage/graph.h"

namespace stowage {

// Tensors joined by aliases share one group, named by its smallest tensor id. So do a parameter or a gradient
// and its slices; slices of optimizer state are each by itself, since no op touches their whole.
std::vector<TensorId> alias_groups(const Graph& graph);

// What recomputing one unit means.
struct UnitReplay {
  // Tensors of the unit that only its own forward ops and its backward ops read, and that some
  // backward op reads: dropped after forward when the unit is recomputed.
  std::vector<TensorId> saved;
  // The forward ops that rebuild all of `saved`, in program order. None, and nothing saved, for the unit in
  // which forward turns into backward; each micro-batch has its own turn (execution_order.h).
  std::vector<OpId> ops;
  // Groups (alias_groups) that the replay or the unit's backward ops read and no replay rebuilds:
  // what may be offloaded when the unit is recomputed.
  std::vector<TensorId> inputs;
  Bytes saved_bytes = 0;
};

struct RecomputeAnalysis {
  MicroBatchOrder order = MicroBatchOrder::layer_major;
  std::vector<OpId> sequence;   // execution_order
  std::vector<TensorId> group;  // by tensor
  // By group: the member that is its state at the end of forward; no_id where forward writes none.
  std::vector<TensorId> forward_state;
  std::vector<std::uint8_t> rebuildable;  // by tensor: its unit's replay rebuilds it
  // By group: its value crosses units (or is the loss), so that a replay must not overwrite it.
  std::vector<std::uint8_t> boundary;
  std::vector<UnitReplay> units;
  // By group: the forward op that makes this value anew, alone and from values that backward has; no_id where
  // none does. The value crosses from the op's unit into the next one, and backward reads it in those two
  // alone: an activation function's result, say, which the next layer's product multiplies.
  std::vector<OpId> remaker;
};

RecomputeAnalysis analyse_recompute(const Graph& graph, MicroBatchOrder order = MicroBatchOrder::layer_major);

// The replay of a unit of which some saved values stay: the part of its ops that rebuilds the others.
struct PartialReplay {
  std::vector<OpId> ops;          // in program order
  std::vector<TensorId> rebuilt;  // groups, sorted: all that the ops write and that may be overwritten
};
// `stays` says of a group (alias_groups) whether its saved value is still there when the unit's backward
// begins. A group that does stay is rebuilt all the same where the replay needs an earlier state of it.
PartialReplay replay_of(const Graph& graph, const RecomputeAnalysis& analysis, std::uint32_t unit,
                        const std::function<bool(TensorId)>& stays);

}  // namespace stowage
