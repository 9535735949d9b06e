// Exact dynamic storage allocation for a few items: offsets within a limit, or the proof that there are none.
#pragma once

#include <optional>
#include <vector>

#include "stowage/bytes.h"

namespace stowage::oracle {

// Items that share a slice of time must not share bytes.
struct PlacedItem {
  Bytes bytes = 0;
  std::vector<std::size_t> slices;
};

struct ExactPlacement {
  bool complete = true;                       // false: given up after `most_nodes`
  std::optional<std::vector<Bytes>> offsets;  // by item, multiples of `alignment`
};

// Any packing can be pushed down until each item stands on the ground or on one that it meets, and then be
// built from the lowest item up. So orders are tried: each item as low as what it meets allows, and none
// lower than the one before. What lies idle in a slice below the last offset is lost to it, and a slice can
// lose no more than the limit leaves beside its items (as in Moffitt's minimalloc, "sections" and their
// floors).
ExactPlacement place_exactly(const std::vector<PlacedItem>& items, Bytes limit, Bytes alignment,
                             std::size_t most_nodes);

}  // namespace stowage::oracle
