// Offsets for the stays of one period, some of which live across its end: exact for a few items.
#pragma once

#include <optional>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

// Bytes are taken in [first, last) and, of what lives across the end of the period, in [0, wrap).
struct PackingItem {
  std::int64_t first = 0, last = 0, wrap = 0;
  Bytes bytes = 0;
  friend bool operator==(const PackingItem&, const PackingItem&) = default;
};

// Offsets, multiples of `alignment`, with all ends within `limit`; nullopt where there are none or
// `most_nodes` steps of the search found none. Items are placed from the lowest up, each as low as those it
// meets in time allow; where more lies idle below than the limit leaves at some moment, the search turns back
// (Moffitt, "MiniMalloc: A Lightweight Memory Allocator for Hardware-Accelerated Machine Learning"). The same
// items left above the same heights are not searched twice.
std::optional<std::vector<Bytes>> pack(const std::vector<PackingItem>& items, Bytes limit, Bytes alignment,
                                       std::size_t most_nodes);

}  // namespace stowage
