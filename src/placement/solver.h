// From one placement to better ones, by search.
#pragma once

#include <span>

#include "stowage/placement.h"

namespace stowage::placement {

// `result` is a placement of these items under this alignment, and is replaced by the best one found; its
// proven_bound rises where the search shows that it may. `options` as for `solve_placement`.
void improve(std::span<const PlacementItem> items, const PlacementOptions& options, PlacementResult& result);

}  // namespace stowage::placement
