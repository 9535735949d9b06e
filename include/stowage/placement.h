// Dynamic storage allocation: buffers with known lifetimes get fixed offsets in one arena.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
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
  Bytes proven_bound = 0;  // no placement has a smaller peak; more than lower_bound where a search showed it

  bool optimal() const { return peak == proven_bound; }
};

// Largest sum of bytes live at one position: no placement can be smaller.
Bytes peak_live_bytes(std::span<const PlacementItem> items);

// Best of several greedy orders (size, area, duration, start, end, pressure; first fit and best fit),
// stopping early at 1/65536 above the lower bound, and of a short search below it for up to 512 items, which
// goes on for longer where it is not within a hundredth. Tens of milliseconds for some hundred items, at most
// about a third of a second for any number. Deterministic. Throws InvalidInput for an empty interval or zero
// size.
PlacementResult place(std::span<const PlacementItem> items, Bytes alignment);

struct PlacementProgress {
  Bytes peak = 0;  // of the best placement so far
  Bytes proven_bound = 0;
  std::uint64_t nodes = 0;  // branchings so far
};

struct PlacementOptions {
  Bytes alignment = 1;  // a power of two
  // Ends with the first placement whose peak is no larger, or once it is known that there is none; 0: looks
  // for the smallest peak.
  Bytes capacity = 0;
  std::uint64_t node_limit = 1'000'000;  // branchings of the search; 0: greedy orders alone
  // Called every few hundred branchings; false ends the search. Callers with a clock put their limit here.
  std::function<bool(const PlacementProgress&)> keep_going;
};

// The best of greedy orders and of a branch-and-bound search below them, which also proves bounds. Searches
// where items times distinct times is no more than some eight million. Deterministic as long as keep_going
// says yes. Throws InvalidInput as `place` does.
//
// The search places items from the bottom up at the lowest offsets still possible, as Moffitt, "MiniMalloc",
// ASPLOS 2023, sections 3 to 5 (canonical solutions, sections, spatial inference), but branches on what fills
// a section's floor, and learns from each failure which items with which lowest offsets cannot all be placed.
PlacementResult solve_placement(std::span<const PlacementItem> items, const PlacementOptions& options);

// What is wrong with a placement, in words: a count, an offset off the alignment, two items that share bytes
// while both are live, a peak that is not theirs. Empty where nothing is. Knows nothing of how it was made.
std::string check_placement(std::span<const PlacementItem> items, const PlacementResult& result,
                            Bytes alignment);

}  // namespace stowage
