// Items as the greedy orders and the squeeze see them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stowage/placement.h"

namespace stowage::placement {

// An item with what the orders sort by.
struct Block {
  std::int64_t first = 0;
  std::int64_t last = 0;
  Bytes bytes = 0;
  Bytes aligned = 0;
  Bytes pressure = 0;  // most aligned bytes live at one time within the block's interval

  double duration() const { return static_cast<double>(last) - static_cast<double>(first); }
  double area() const { return duration() * static_cast<double>(aligned); }
};

// One for each item, in their order, without the pressure.
inline std::vector<Block> to_blocks(std::span<const PlacementItem> items, Bytes alignment) {
  std::vector<Block> blocks;
  blocks.reserve(items.size());
  for (const PlacementItem& item : items) {
    blocks.push_back({item.first, item.last, item.bytes, align_up(item.bytes, alignment), 0});
  }
  return blocks;
}

}  // namespace stowage::placement
