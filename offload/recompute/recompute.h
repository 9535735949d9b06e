// Which tensors each half-block keeps for its backward pass, and the ops that could rebuild them instead.
//
// The method is that of Chen et al., "Training Deep Nets with Sublinear Memory Cost" (section 4), with units
// as segments. Pure functions of the graph and the order in which it is executed.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "offload/recompute/execution_order.h"
#include "stowage/graph.h"

namespace stowage {

// Returns the group of each tensor. Tensors joined by aliases are in one group, named by its smallest tensor
// id. A parameter or gradient and its slices are in one group, too. Each slice of optimizer state is a group
// of its own, because no op touches the whole tensor.
std::vector<TensorId> alias_groups(const Graph& graph);

// How one unit is recomputed.
struct UnitReplay {
  // Tensors of the unit that are dropped after forward when the unit is recomputed: only the unit's own ops
  // read them, at least one of these in backward.
  std::vector<TensorId> saved;
  // The forward ops that rebuild all of `saved`, in program order. `saved` and `ops` are empty for the unit
  // in which forward turns into backward; each micro-batch has such a unit (execution_order.h).
  std::vector<OpId> ops;
  // Groups (alias_groups) that may be offloaded when the unit is recomputed: the replay or the unit's
  // backward ops read them, and no replay rebuilds them.
  std::vector<TensorId> inputs;
  Bytes saved_bytes = 0;
};

struct RecomputeAnalysis {
  MicroBatchOrder order = MicroBatchOrder::layer_major;
  std::vector<OpId> sequence;   // ops in the order of execution (execution_order)
  std::vector<TensorId> group;  // group of each tensor
  // By group: the member that is its state at the end of forward; no_id if forward writes no member.
  std::vector<TensorId> forward_state;
  std::vector<std::uint8_t> rebuildable;  // by tensor: true if its unit's replay rebuilds it
  // By group: true if its value crosses units or is the loss, so that a replay must not overwrite it.
  std::vector<std::uint8_t> boundary;
  std::vector<UnitReplay> units;
  // By group: a forward op that alone can make this value anew from values that backward has; no_id if there
  // is none. Such a value crosses from the op's unit into the next one, and backward reads it only in these
  // two units. An example is an activation function's result that the next layer's product multiplies.
  std::vector<OpId> remaker;
};

RecomputeAnalysis analyse_recompute(const Graph& graph, MicroBatchOrder order = MicroBatchOrder::layer_major);

// The replay of a unit if some of its saved values stay: the part of its ops that rebuilds the other values.
struct PartialReplay {
  std::vector<OpId> ops;          // ops in program order
  std::vector<TensorId> rebuilt;  // sorted groups that the ops write and that may be overwritten
};
// `stays` returns whether the saved value of a group (alias_groups) is still there when the unit's backward
// begins. A group that stays is rebuilt nevertheless if the replay needs an earlier state of it.
PartialReplay replay_of(const Graph& graph, const RecomputeAnalysis& analysis, std::uint32_t unit,
                        const std::function<bool(TensorId)>& stays);

}  // namespace stowage
