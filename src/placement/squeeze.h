// Makes placements under a lower ceiling from placements under a higher one.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "src/placement/movable_blocks.h"
#include "src/placement/pressure.h"
#include "stowage/placement.h"

namespace stowage::placement {

// Lowers the ceiling over a placement and makes room for the blocks that then stick out.
//
//     6  ccccc
//     5  ccccc
//        -------          -------          -------          -------  ceiling
//     4                                                        bbb
//     3     bbb              bbb           ccccc            ccccc
//     2                                    ccccc            ccccc
//     1  aaaaaaa          aaaaaaa          aaaaaaa          aaaaaaa
//     0  aaaaaaa          aaaaaaa          aaaaaaa          aaaaaaa
//        before           c waits          c evicts b       b fits
//
// 1. Blocks that end above the ceiling are taken out, and wait.
// 2. The largest waiting block takes the lowest gap that holds it. If there is none, it takes the place at
//    the edge of another block where it does least harm, and the blocks in its way are evicted and wait. Harm
//    is the sum of their weights. A block weighs its size times its life, and twice as much each time that it
//    finds no gap: blocks that are hard to place are left alone in the end. Sums are in doubles on purpose:
//    beside a much heavier block the others round to nothing; exact sums cycle on some inputs.
// 3. The ceiling is reached when no block waits. It is given up when the area of the waiting blocks has not
//    fallen to a new low for some moves; the weights stay for the next attempt.
//
// The blocks come in stages. The first stage has the blocks that are live where nearly the bound is live, and
// the large ones: little room is left for them. Blocks of later stages are placed anew each time, and seldom
// evict others.
class Squeeze {
 public:
  // Keeps references to `blocks` and `strategies`. `bound`: the most bytes live at one time.
  Squeeze(std::span<const Block> blocks, const PlacementStrategies& strategies, Bytes alignment, Bytes bound);

  // Tries to place all blocks under `ceiling`, and returns whether it did. Requires that no block is higher
  // than the ceiling, and that `offsets` is a sound placement; blocks that end under the ceiling in it may
  // stay. `spend` is asked before each move; false ends the attempt.
  bool reach(Bytes ceiling, std::span<const Bytes> offsets, const std::function<bool()>& spend);
  // Whether the allowed looks are spent.
  bool spent() const { return standing_.looks() >= strategies_.squeeze_looks; }
  // Offsets of the placement last reached.
  const std::vector<Bytes>& offsets() const { return standing_.offsets(); }

 private:
  struct Waiting {
    Bytes bytes = 0;
    std::uint32_t id = 0;
    friend auto operator<=>(const Waiting&, const Waiting&) = default;
  };

  void divide(Bytes bound);
  void load(std::span<const Bytes> offsets);
  void wait(std::uint32_t id);
  bool settle(const std::function<bool()>& spend);
  void move(std::uint32_t id);
  void evict(Bytes begin, Bytes end);
  void grow_heavier(std::uint32_t id);
  // Returns the highest offset at which the block ends under the ceiling.
  Bytes highest(std::uint32_t id) const;
  std::optional<Bytes> find_gap(std::uint32_t id) const;
  Bytes find_least_harm(std::uint32_t id);

  std::span<const Block> blocks_;
  const PlacementStrategies& strategies_;
  Bytes alignment_;
  std::vector<std::vector<std::uint32_t>> stages_;
  std::vector<double> areas_, weights_;  // by id
  double waiting_area_ = 0;
  Bytes ceiling_ = 0;
  MovableBlocks standing_;
  std::priority_queue<Waiting> waiting_;
  std::vector<std::uint32_t> evicted_;
};

}  // namespace stowage::placement
