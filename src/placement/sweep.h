// One placement of any number of items in little time.
#pragma once

#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

// Offsets by item: from the first to the last moment, each start takes the tightest gap that is free then
// (the lowest of equals). n log n for n items.
std::vector<Bytes> sweep(std::span<const PlacementItem> items, Bytes alignment);

}  // namespace stowage::placement
