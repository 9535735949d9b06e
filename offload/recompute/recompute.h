// What each half-block keeps for its backward pass, and what it takes to rebuild that instead.
//
// Chen et al., "Training Deep Nets with Sublinear Memory Cost" (section 4), with units as segments.
// Pure functions of the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/graph.h"

namespace stowage {

// Tensors joined by aliases share one group, named by its smallest tensor id.
std::vector<TensorId> alias_groups(const Graph& graph);

// What recomputing one unit means.
struct UnitReplay {
  // Tensors of the unit that only its own forward ops and its backward ops read, and that some
  // backward op reads: dropped after forward when the unit is recomputed.
  std::vector<TensorId> saved;
  // The forward ops that rebuild all of `saved`, in program order. None, and nothing saved, for the unit in
  // which forward turns into backward.
  std::vector<OpId> ops;
  // Groups (alias_groups) that the replay or the unit's backward ops read and no replay rebuilds:
  // what may be offloaded when the unit is recomputed.
  std::vector<TensorId> inputs;
  Bytes saved_bytes = 0;
};

struct RecomputeAnalysis {
  std::vector<TensorId> group;  // by tensor
  // By group: its value crosses units (or is the loss), so that a replay must not overwrite it.
  std::vector<std::uint8_t> boundary;
  std::vector<UnitReplay> units;
};

RecomputeAnalysis analyse_recompute(const Graph& graph);

}  // namespace stowage
