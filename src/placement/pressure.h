// Live bytes over time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

// The live bytes at every distinct interval start; the peak is at one of these. Sizes are aligned up.
class Pressure {
 public:
  Pressure(std::span<const PlacementItem> items, Bytes alignment);

  // Lower bound of any placement's peak: among the items live at one time, only the topmost can leave the
  // slack of its rounding unused.
  Bytes bound() const;
  // Returns the most bytes live at one time within the item's interval.
  Bytes most_within(const PlacementItem& item) const;

 private:
  std::size_t index(std::int64_t position) const;
  std::vector<Bytes> largest_slacks() const;

  std::span<const PlacementItem> items_;
  Bytes alignment_;
  std::vector<std::int64_t> starts_;
  // A tree of maxima: leaf `starts_.size() + i` is start i, node n the larger of nodes 2n and 2n+1.
  std::vector<Bytes> live_;
};

}  // namespace stowage::placement
