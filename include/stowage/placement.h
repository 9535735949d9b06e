// Dynamic storage allocation: buffers with known lifetimes get fixed offsets in one arena.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

// A buffer that is live in the half-open interval [first, last). `bytes` > 0.
struct PlacementItem {
  std::int64_t first = 0;
  std::int64_t last = 0;
  Bytes bytes = 0;
};

struct PlacementResult {
  std::vector<Bytes> offsets;  // one offset per item, a multiple of the alignment
  Bytes peak = 0;              // max over items of offset + bytes (not rounded up)
  Bytes lower_bound = 0;       // largest sum of aligned-up sizes live at one time, less the slack of rounding
  Bytes proven_bound = 0;      // no placement has a smaller peak; above lower_bound if a search proved so

  bool optimal() const { return peak == proven_bound; }
};

// Largest sum of bytes live at one position: no placement can be smaller.
Bytes peak_live_bytes(std::span<const PlacementItem> items);

// The solver's techniques in the order in which they are tried, for tests and ablations. Users keep the
// defaults.
struct PlacementStrategies {
  // Greedy orders (size, area, duration, start, end, pressure) by first fit end once they have looked at so
  // many placed items, at about a nanosecond each. If no order was completed, a sweep through time is taken.
  std::uint64_t greedy_looks = 300'000'000;
  // The same orders are tried by best fit: the tightest hole.
  bool best_fit = true;
  // Three orders are tried again and again, each time with the item that made the peak moved towards the
  // front: Joslin and Clements, "Squeaky Wheel Optimization", 1999.
  bool squeaky_wheel = true;

  // Branch and bound from the bottom up, as Moffitt, "MiniMalloc", ASPLOS 2023, sections 3 to 5 (canonical
  // solutions, sections, spatial inference), but branching on what fills a section's floor, and learning from
  // each failure which items with which lowest offsets cannot all be placed. Proves bounds. Takes part if
  // items times distinct times is at most some eight million.
  bool branch_and_bound = true;
  // Branchings before the squeeze joins in; from then on the two take turns that double.
  std::uint64_t first_turn = 20'000;

  // The ceiling is lowered again and again. Items that stick out are placed anew and evict the items in their
  // way that weigh least (src/placement/squeeze.h). Takes part for any number of items.
  bool squeeze = true;
  // The squeeze ends when it has looked at so many standing items. A look costs a nanosecond, a move from one
  // to some hundred microseconds.
  std::uint64_t squeeze_looks = std::numeric_limits<std::uint64_t>::max();
  // Factor on an item's weight (size times life at first) each time that it has found no hole.
  double squeeze_reluctance = 2;
  // Moves without progress after which a ceiling is given up for a higher one.
  std::uint64_t squeeze_patience = 5'000;
  // Items are placed in stages, the tightest first. An item's tightness is the most bytes live within its
  // life, plus its own size times `squeeze_size_counts`, over the lower bound. A stage takes the items that
  // are at least this tight, the last stage all others.
  std::vector<double> squeeze_stages = {0.97, 0.9, 0.75, 0.5};
  double squeeze_size_counts = 2;
};

struct PlacementProgress {
  Bytes peak = 0;  // peak of the best placement so far
  Bytes proven_bound = 0;
  std::uint64_t nodes = 0;  // branchings and moves so far
};

struct PlacementOptions {
  Bytes alignment = 1;  // a power of two
  // The search ends with the first placement whose peak is no larger, or once it is known that there is none.
  // 0: looks for the smallest peak.
  Bytes capacity = 0;
  std::uint64_t node_limit = 1'000'000;  // limit of branchings and moves; 0: only greedy orders are tried
  // Called every few hundred nodes; false ends the search. Callers with a clock put their limit here.
  std::function<bool(const PlacementProgress&)> keep_going;
  PlacementStrategies strategies = {};
};

// Returns the best placement of greedy orders, then of branch and bound and of squeezing in turns, until it
// is proven optimal or a limit is reached. Deterministic as long as keep_going returns true, and never worse
// with more nodes. Throws InvalidInput for an empty interval or zero size.
PlacementResult solve_placement(std::span<const PlacementItem> items, const PlacementOptions& options);

// A brief search: greedy orders until one is within 1/65536 of the lower bound; for up to 512 items a short
// branch and bound, longer if it is not within a hundredth; and squeezing to 1/128. Takes tens of
// milliseconds for some hundred items, at most about a third of a second for any number. Deterministic.
PlacementResult place(std::span<const PlacementItem> items, Bytes alignment);

// Returns the first fault of a placement in words, "" if there is none: a wrong count, an offset off the
// alignment, two items that share bytes while both are live, a wrong peak. Does not know how the placement
// was made.
std::string check_placement(std::span<const PlacementItem> items, const PlacementResult& result,
                            Bytes alignment);

}  // namespace stowage
