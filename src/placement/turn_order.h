// The order of time in which items are placed, and where in it they repeat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

// A stretch of a sequence that repeats, as a Transformer's blocks do.
// What stands at i stands at i - period too, for every i from begin + period up to end.
struct Repeat {
  std::size_t begin = 0, end = 0, period = 1;
  friend bool operator==(const Repeat&, const Repeat&) = default;
};

// Stretches of at least four periods, by rising begin. They do not overlap: the longest are taken first, of
// equals those of the shortest period. Only periods that a window of four is often repeated at are found.
// Work is about linear where stretches are few.
std::vector<Repeat> find_repeats(std::span<const std::uint32_t> sequence);

class TurnOrder {
 public:
  // By their first position; of items that begin together the largest first. Keeps a reference.
  explicit TurnOrder(std::span<const PlacementItem> items);

  std::size_t count() const { return order_.size(); }
  std::uint32_t item(std::size_t turn) const { return order_[turn]; }
  // Positions from the first of one turn's item to that of another's.
  std::int64_t shift(std::size_t from, std::size_t to) const;
  // The repeat that a turn is in: items have as many bytes, last as long, and begin as long behind the one
  // before as one period earlier. Null where it is in none.
  const Repeat* stretch_at(std::size_t turn) const;
  // Turns that are in no repeat, and in so many first periods of one; at least 1.
  std::size_t apart(std::size_t periods) const;
  // Items, at least 1.
  std::size_t live_on_average() const;

 private:
  std::vector<std::uint32_t> kinds() const;

  std::span<const PlacementItem> items_;
  std::vector<std::uint32_t> order_;
  std::vector<Repeat> repeats_;
};

}  // namespace stowage::placement
