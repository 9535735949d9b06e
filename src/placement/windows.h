// The time axis, cut into windows that hold about as many blocks each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/placement/block.h"

namespace stowage::placement {

// A window holds some 64 starts of blocks, or as many as blocks cross its border if those are more: so a
// short block meets few others of its window that are not live together with it. Few blocks have one window.
class Windows {
 public:
  explicit Windows(std::span<const Block> blocks);

  std::size_t count() const { return begins_.size() + 1; }
  // The window that a position lies in.
  std::size_t at(std::int64_t position) const;
  // Whether a block that starts at `first` starts before window `w`, which is not the first one.
  bool starts_before(std::int64_t first, std::size_t w) const { return first < begins_[w - 1]; }

 private:
  std::vector<std::int64_t> begins_;  // of the windows but the first
};

}  // namespace stowage::placement
