// Placements by greedy orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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

// One placement of any number of items in n log n time.
// Offsets by item: from the first to the last moment, each start takes the tightest gap that is free then
// (the lowest of equals). n log n for n items.
std::vector<Bytes> sweep(std::span<const PlacementItem> items, Bytes alignment);

// Granules: the peak counts granules that must be backed at once, not the height of the items.

// The most granules of `granule` bytes that items at these offsets touch at one time.
std::uint64_t most_touched(std::span<const PlacementItem> items, std::span<const Bytes> offsets,
                           Bytes granule);

// Offsets, multiples of the alignment, that touch few granules at one time, however high they end: the best
// of greedy orders (sizes times powers of durations; first fit and best fit). Stops early where no more are
// touched than the live bytes fill. Deterministic. Throws InvalidInput as `place` does.
std::vector<Bytes> place_for_granules(std::span<const PlacementItem> items, Bytes alignment, Bytes granule);

// Placement under a given height, in the order of time.

struct BeamOptions {
  Bytes height = 0;
  Bytes alignment = 1;      // a power of two
  std::size_t width = 64;   // placements that are carried along
  double coherence = 0.35;  // what it counts that neighbours end together, against gaps left
};

// Offsets by item, multiples of the alignment, with all ends within the height; nullopt where some item found
// no place. Deterministic; work is at most about items times width times what is live.
//
// A beam search over placements of all items that begin up to a time, the next of which is put at either end
// of each gap that holds it. They are told apart by their gaps, squared (few large ones are better than many
// small ones), and by how far apart neighbours end (what ends together leaves one gap).
//
// Where items repeat, as the blocks of a Transformer do, a placement that stands as it stood some periods
// before goes on as it did, without a search. The time that this saves goes into where repeats begin and end:
// there up to four times `width` are carried along.
std::optional<std::vector<Bytes>> place_in_time(std::span<const PlacementItem> items,
                                                const BeamOptions& options);

// Improves a placement by search.
// `result` is a placement of these items under this alignment, and is replaced by the best one found; its
// proven_bound rises where the search shows that it may. `options` as for `solve_placement`.
void improve(std::span<const PlacementItem> items, const PlacementOptions& options, PlacementResult& result);

}  // namespace stowage::placement
