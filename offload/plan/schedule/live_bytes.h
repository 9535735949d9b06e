// Bytes live at each position, and where there is room for more: a segment tree of maxima.
#pragma once

#include <cstdint>
#include <vector>

#include "stowage/plan.h"

namespace stowage {

// Positions 0 to `positions`; all intervals are half-open and lie within them. Each call takes logarithmic
// time.
class LiveBytes {
 public:
  explicit LiveBytes(Position positions);
  // Begins with `at[p]` bytes live at position p. Takes linear time.
  explicit LiveBytes(const std::vector<Bytes>& at);

  void add(Position first, Position last, Bytes bytes);
  Bytes most() const;  // the maximum over positions
  Bytes at(Position position) const;
  // Returns the last position of [first, last) with more than `limit` bytes live; first - 1 if there is none.
  Position last_above(Position first, Position last, Bytes limit) const;

 private:
  // `added`: bytes that were added to all positions of the node at once. `most`: the maximum over these
  // positions, counting the bytes added at this node and below it.
  struct Node {
    Bytes added = 0;
    Bytes most = 0;
  };
  void look_below(std::size_t node);
  Position last_above(std::size_t node, Position begin, Position end, Position first, Position last,
                      std::int64_t limit) const;

  Position size_ = 1;  // leaves of the tree: a power of two
  std::vector<Node> nodes_;
};

}  // namespace stowage
