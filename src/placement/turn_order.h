// TurnOrder: the order of time in which items are placed, and its repeats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

// A stretch of a sequence that repeats, as a Transformer's blocks do: for every i from begin + period up to
// end, elements i and i - period are equal.
struct Repeat {
  std::size_t begin = 0, end = 0, period = 1;
  friend bool operator==(const Repeat&, const Repeat&) = default;
};

// Returns stretches of at least four periods, by rising begin. They do not overlap: longer ones are taken
// first, then those with a shorter period. Only periods at which windows of four elements often repeat are
// found. The work is about linear if stretches are few.
std::vector<Repeat> find_repeats(std::span<const std::uint32_t> sequence);

class TurnOrder {
 public:
  // Orders items by their first position; the largest first among items that begin together. Keeps a
  // reference to `items`.
  explicit TurnOrder(std::span<const PlacementItem> items);

  std::size_t count() const { return order_.size(); }
  std::uint32_t item(std::size_t turn) const { return order_[turn]; }
  // Returns the positions from the beginning of one turn's item to the beginning of another's.
  std::int64_t shift(std::size_t from, std::size_t to) const;
  // Returns the repeat that a turn is in; null if none. An item of a repeat has the same bytes, life and
  // distance to the item before as the item one period earlier.
  const Repeat* stretch_at(std::size_t turn) const;
  // Returns the number of turns outside of repeats and in the first `periods` periods of each; at least 1.
  std::size_t apart(std::size_t periods) const;
  // Returns the number of items, at least 1.
  std::size_t live_on_average() const;

 private:
  std::vector<std::uint32_t> kinds() const;

  std::span<const PlacementItem> items_;
  std::vector<std::uint32_t> order_;
  std::vector<Repeat> repeats_;
};

}  // namespace stowage::placement
