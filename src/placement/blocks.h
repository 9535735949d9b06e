// Placed blocks, and the gaps between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "src/placement/windows.h"

namespace stowage::placement {

enum class Fit : std::uint8_t { first, best };

// Keeps placed blocks by windows of time.
class PlacedBlocks {
 public:
  // Makes the windows for these blocks; no block is placed yet.
  explicit PlacedBlocks(std::span<const Block> blocks);

  void clear();
  void add(const Block& block, Bytes offset);
  // Returns the lowest gap (Fit::first) or the tightest gap (Fit::best, the lowest of equals) between the
  // placed blocks that are live together with `block`.
  Bytes find_gap(const Block& block, Fit fit);
  // As find_gap, but faster. Requires that no placed block starts later; forgets blocks that have ended.
  Bytes find_gap_of_latest(const Block& block, Fit fit);
  // Measures the work: roughly the number of blocks looked at so far.
  std::uint64_t looks() const { return looks_; }

 private:
  struct Placed {
    Bytes offset = 0;
    Bytes end = 0;
    std::int64_t first = 0;
    std::int64_t last = 0;
  };
  using Window = std::vector<Placed>;  // by offset

  static bool is_lower(const Placed& a, const Placed& b) { return a.offset < b.offset; }
  static Bytes gap_between(const Window& placed, const Block& block, Fit fit);
  // Returns by offset all placed blocks that are live together with this one; other blocks may be among them.
  const Window& around(const Block& block);
  void sort_in_added();

  Windows times_;
  std::vector<Window> windows_;
  Window gathered_;
  Window all_;                 // blocks by offset, without those in added_
  std::vector<Placed> added_;  // blocks that all_ lacks
  std::size_t many_ = 0;       // windows with more blocks than this drop ended blocks
  std::uint64_t looks_ = 0;
};

}  // namespace stowage::placement
