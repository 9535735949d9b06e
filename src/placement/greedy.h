// Placements by greedy orders.
#pragma once

#include <span>

#include "stowage/placement.h"

namespace stowage::placement {

// Where the greedy orders stop before all have been tried.
enum class Goal : std::uint8_t { bound, nearly };

// What counts as nearly the bound: 1/65536 above it.
constexpr Bytes nearly(Bytes bound) { return bound + (bound >> 16U); }

// Best of several orders (size, area, duration, start, end, pressure; first fit and best fit), of which a few
// are mended again and again, until one reaches the goal or their looks are spent. Proves nothing but
// the lower bound. Throws InvalidInput as `place` does.
PlacementResult place_greedily(std::span<const PlacementItem> items, Bytes alignment,
                               const PlacementStrategies& strategies, Goal goal);

// Throws InvalidInput for an alignment that is no power of two, an empty interval, a zero size, or sizes
// whose sum comes near 64 bits.
void check_items(std::span<const PlacementItem> items, Bytes alignment);

}  // namespace stowage::placement
