// Placement under a given height, in the order of time.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

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

}  // namespace stowage::placement
