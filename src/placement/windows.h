// The time axis, cut into windows that hold about equally many blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

// An item with the values that the orders sort by.
struct Block {
  std::int64_t first = 0;
  std::int64_t last = 0;
  Bytes bytes = 0;
  Bytes aligned = 0;
  Bytes pressure = 0;  // most aligned bytes live at one time within the block's interval

  double duration() const { return static_cast<double>(last) - static_cast<double>(first); }
  double area() const { return duration() * static_cast<double>(aligned); }
};

// Returns a block for each item, in order, without the pressure.
inline std::vector<Block> to_blocks(std::span<const PlacementItem> items, Bytes alignment) {
  std::vector<Block> blocks;
  blocks.reserve(items.size());
  for (const PlacementItem& item : items) {
    blocks.push_back({item.first, item.last, item.bytes, align_up(item.bytes, alignment), 0});
  }
  return blocks;
}

// A window holds about 64 starts of blocks, or as many as blocks cross its border, if that is more. A short
// block's window thus has few blocks that are not live together with it. Few blocks make one window.
class Windows {
 public:
  explicit Windows(std::span<const Block> blocks);

  std::size_t count() const { return begins_.size() + 1; }
  // Returns the window of a position.
  std::size_t at(std::int64_t position) const;
  // Whether a block that starts at `first` starts before window `w`. Requires that `w` is not the
  // first window.
  bool starts_before(std::int64_t first, std::size_t w) const { return first < begins_[w - 1]; }

 private:
  std::vector<std::int64_t> begins_;  // begins of all windows but the first
};

}  // namespace stowage::placement
