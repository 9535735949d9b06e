// Placement where what counts is not how high the items end but how many granules must be backed at once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

// The most granules of `granule` bytes that items at these offsets touch at one time.
std::uint64_t most_touched(std::span<const PlacementItem> items, std::span<const Bytes> offsets,
                           Bytes granule);

// Offsets, multiples of the alignment, that touch few granules at one time, however high they end: the best
// of greedy orders (sizes times powers of durations; first fit and best fit). Stops early where no more are
// touched than the live bytes fill. Deterministic. Throws InvalidInput as `place` does.
std::vector<Bytes> place_for_granules(std::span<const PlacementItem> items, Bytes alignment, Bytes granule);

}  // namespace stowage::placement
