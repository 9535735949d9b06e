// Dynamic storage allocation: buffers with known lifetimes get fixed offsets in one arena.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

// Live in the half-open interval [first, last). `bytes` > 0.
struct PlacementItem {
  std::int64_t first = 0;
  std::int64_t last = 0;
  Bytes bytes = 0;
};

struct PlacementResult {
  std::vector<Bytes> offsets;  // by item, multiples of the alignment
  Bytes peak = 0;              // max over items of offset + bytes (not rounded up)
  Bytes lower_bound = 0;       // largest sum of aligned-up sizes live at one time, less the slack of rounding
};

// Largest sum of bytes live at one position: no placement can be smaller.
Bytes peak_live_bytes(std::span<const PlacementItem> items);

// Best of several greedy orders (size, area, duration, start, end, pressure; first fit and best fit)
// and a short search that starts from them, about ten milliseconds in all for 1,000 items, stopping
// early at the lower bound. Deterministic. Throws InvalidInput for an empty interval or zero size.
PlacementResult place(std::span<const PlacementItem> items, Bytes alignment);

}  // namespace stowage
