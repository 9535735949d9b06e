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
  // With so many bytes live at each position to begin with. Linear time.
  explicit LiveBytes(const std::vector<Bytes>& at);

  void add(Position first, Position last, Bytes bytes);
  Bytes most() const;  // at any position
  Bytes at(Position position) const;
  // The last position of [first, last) with more than `limit` bytes live; first - 1 if there is none.
  Position last_above(Position first, Position last, Bytes limit) const;

 private:
  // Of a node's positions: what was added to all of them at this node, and the most below and at it.
  struct Node {
    Bytes added = 0;
    Bytes most = 0;
  };
  void look_below(std::size_t node);
  Position last_above(std::size_t node, Position begin, Position end, Position first, Position last,
                      std::int64_t limit) const;

  Position size_ = 1;  // a power of two
  std::vector<Node> nodes_;
};

}  // namespace stowage
