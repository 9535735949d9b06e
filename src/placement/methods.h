// Methods of placement: greedy orders, a sweep, for granules, a beam search in time, and improvement
// by search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

// The peak at which the greedy orders stop early.
enum class Goal : std::uint8_t { bound, nearly };

// The largest peak that counts as nearly the bound: 1/65536 above it.
constexpr Bytes nearly(Bytes bound) { return bound + (bound >> 16U); }

// Returns the best of several orders (size, area, duration, start, end, pressure; first fit and best fit). A
// few orders are mended repeatedly, until one reaches the goal or the looks are spent. Proves only the lower
// bound. Throws InvalidInput as `place` does.
PlacementResult place_greedily(std::span<const PlacementItem> items, Bytes alignment,
                               const PlacementStrategies& strategies, Goal goal);

// Throws InvalidInput for an alignment that is no power of two, an empty interval, a zero size, or sizes
// whose sum nears 64 bits.
void check_items(std::span<const PlacementItem> items, Bytes alignment);

// Places any number of items in O(n log n) time. Returns offsets by item: in order of time, each item takes
// the tightest gap that is free at its start (the lowest of equals).
std::vector<Bytes> sweep(std::span<const PlacementItem> items, Bytes alignment);

// Placement for granules: the cost is the number of granules that must be backed at once, not the
// items' height.

// Returns the most granules of `granule` bytes that items at these offsets touch at one time.
std::uint64_t most_touched(std::span<const PlacementItem> items, std::span<const Bytes> offsets,
                           Bytes granule);

// Returns offsets, multiples of the alignment, that touch few granules at one time, however high they end:
// the best of greedy orders (sizes times powers of durations; first fit and best fit). Stops early if the
// items touch no more granules than the live bytes fill. Deterministic. Throws InvalidInput as `place` does.
std::vector<Bytes> place_for_granules(std::span<const PlacementItem> items, Bytes alignment, Bytes granule);

// Options of a placement under a given height, in the order of time.

struct BeamOptions {
  Bytes height = 0;
  Bytes alignment = 1;      // a power of two
  std::size_t width = 64;   // placements that are carried along
  double coherence = 0.35;  // weight of neighbours that end together, against gaps
};

// Returns offsets by item, multiples of the alignment, with all ends within the height; nullopt if an item
// found no place. Deterministic; the work is at most about items times width times live items.
//
// A beam search over partial placements: of all items that begin up to a time. The next item goes to either
// end of each gap that holds it. A partial placement is scored by the squares of its gaps (few large gaps
// are better than many small ones), and by how far apart neighbours end (neighbours that end together leave
// one gap).
//
// If items repeat, as the blocks of a Transformer do, a placement that stands as it stood some periods before
// continues as it did then, without a search. The time saved is spent where repeats begin and end: there up
// to four times `width` placements are carried along.
std::optional<std::vector<Bytes>> place_in_time(std::span<const PlacementItem> items,
                                                const BeamOptions& options);

// Improves a placement by search. `result`, a placement of these items under this alignment, is replaced by
// the best one found; its proven_bound rises if the search proves more. `options` as for `solve_placement`.
void improve(std::span<const PlacementItem> items, const PlacementOptions& options, PlacementResult& result);

}  // namespace stowage::placement
