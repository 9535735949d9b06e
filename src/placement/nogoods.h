// What the search has learned: sets of items with bounds that no placement under the deadline meets.
#pragma once

#include "src/placement/skyline.h"

namespace stowage::placement {

// Found again by watching one bound of each that does not hold, as solvers watch the literals of a clause
// (Moskewicz and others, "Chaff", DAC 2001, section 2). An item that is placed meets no bound.
class Nogoods {
 public:
  explicit Nogoods(std::size_t items) : watches_(items) {}

  // True under this deadline and any earlier one. Dropped where there is no room; no answer depends on it.
  void add(const Nogood& nogood, Skyline& skyline);
  // Whether one of them holds, copied to `why`. Looks at those that watch items the skyline has touched.
  bool hold(Skyline& skyline, Nogood& why);
  // Forgets the longer half where they have become too many. Only while nothing is placed or raised.
  void trim(Skyline& skyline);
  void clear();
  std::size_t size() const { return begins_.size(); }

 private:
  struct Watch {
    std::size_t nogood = 0;
    std::int64_t least = 0;
  };

  std::span<Bound> bounds(std::size_t nogood);
  bool move_watch(const Watch& watch, const Skyline& skyline);

  std::vector<Bound> bounds_;
  std::vector<std::size_t> begins_;
  std::vector<std::vector<Watch>> watches_;  // by item
};

}  // namespace stowage::placement
