// What the residency pass decides about activations: item by item.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/recompute/recompute.h"
#include "stowage/plan.h"

namespace stowage {

struct BucketLayout;

// One of these:
// - what one forward op leaves for its unit's backward: rebuildable;
// - a value that a unit's backward or replay reads and no replay rebuilds, such as a block's input;
// - any other value with a long gap (choices.h) between two of its uses, such as a skip connection.
struct ActivationItem {
  OpId writer = no_id;  // the op that makes it
  // The unit whose backward or replay reads it, of several the one with the highest number; for a value that
  // only has a long gap, the unit of its last use.
  std::uint32_t unit = no_id;
  std::vector<BucketId> buckets;
  bool rebuildable = false;  // by its unit's replay
  OpId remaker = no_id;      // of a value that crosses units: the op that can remake it (recompute.h)
  Bytes bytes = 0;           // of all its buckets
};

// In program order of their writers.
std::vector<ActivationItem> activation_items(const Graph& graph, const RecomputeAnalysis& analysis,
                                             const BucketLayout& layout);

// The same with all that a unit's replay could rebuild as one item, so that all of it is rebuilt or none.
// Values that cross units are then never remade.
std::vector<ActivationItem> whole_unit_items(const std::vector<ActivationItem>& items);

}  // namespace stowage
