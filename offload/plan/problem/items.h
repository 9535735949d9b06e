// Items: the activations that the residency pass decides about together.
#pragma once

#include <cstdint>
#include <vector>

#include "offload/recompute/recompute.h"
#include "stowage/plan.h"

namespace stowage {

struct BucketLayout;

// An item is one of these:
// - the values that one forward op leaves for its unit's backward: rebuildable;
// - a value that a unit's backward or replay reads and no replay rebuilds, such as a block's input;
// - any other value with a long pause (choices.h) between two of its uses, such as a skip connection.
struct ActivationItem {
  OpId writer = no_id;  // the op that makes it
  // The last unit (highest number) whose backward or replay reads it; for a value that only has a long pause,
  // the unit of its last use.
  std::uint32_t unit = no_id;
  std::vector<BucketId> buckets;
  bool rebuildable = false;  // its unit's replay can rebuild it
  OpId remaker = no_id;      // the op that can remake a value that crosses units (recompute.h)
  Bytes bytes = 0;           // sum of its buckets' bytes
};

// Returns all items in the program order of their writers.
std::vector<ActivationItem> activation_items(const Graph& graph, const RecomputeAnalysis& analysis,
                                             const BucketLayout& layout);

// Returns the items with all rebuildable items of a unit joined into one, so that a replay rebuilds all of a
// unit or nothing. Values that cross units are then never remade.
std::vector<ActivationItem> whole_unit_items(const std::vector<ActivationItem>& items);

}  // namespace stowage
