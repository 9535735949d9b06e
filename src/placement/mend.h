// Placements of many items, mended where they are too high.
#pragma once

#include <span>

#include "stowage/placement.h"

namespace stowage::placement {

// Lowers the peak towards `result.lower_bound`, in steps, until it is within 1/128 of it or a step fails. For
// each item that ends above a step's height, those of the shortest lives around it are taken out and placed
// anew between all others, which stay: first fit, largest first; then the one that ends too high gets an
// earlier turn, again and again (Joslin and Clements, "Squeaky Wheel Optimization", 1999, on a neighbourhood
// instead of the whole). `result` holds a placement of `items`, which are sound, see `place`. Deterministic;
// at most about a tenth of a second.
void mend(std::span<const PlacementItem> items, Bytes alignment, PlacementResult& result);

}  // namespace stowage::placement
