// Learned nogoods: sets of items with bounds that no placement under the deadline meets.
#pragma once

#include "src/placement/skyline.h"

namespace stowage::placement {

// Each nogood watches one of its bounds that does not hold, as solvers watch the literals of a clause
// (Moskewicz and others, "Chaff", DAC 2001, section 2). An item that is placed meets no bound.
class Nogoods {
 public:
  explicit Nogoods(std::size_t items) : watches_(items) {}

  // Adds a nogood of the present deadline, which holds for any earlier deadline too. Drops it if there is no
  // room; no answer depends on it.
  void add(const Nogood& nogood, Skyline& skyline);
  // Whether a nogood holds; copies it to `why`. Checks nogoods that watch items the skyline has touched.
  bool hold(Skyline& skyline, Nogood& why);
  // Forgets the longer half if there are too many. Requires that nothing is placed or raised.
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
