// Placed blocks that can be taken out and placed elsewhere.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "src/placement/windows.h"

namespace stowage::placement {

inline constexpr Bytes no_offset = std::numeric_limits<Bytes>::max();

// A block and its place.
struct PlacedBlock {
  Bytes offset = 0;
  Bytes end = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::uint32_t id = 0;

  bool meets(const Block& block) const { return first < block.last && block.first < last; }
};

// The standing blocks in one order, which is updated when it is read: many blocks come and go between
// two reads.
class LazyOrder {
 public:
  enum class By : std::uint8_t { offset, end };

  explicit LazyOrder(By by) : by_(by) {}
  void clear();
  void add(const PlacedBlock& block) { added_.push_back(block); }
  // Returns the blocks that stand where `offsets`, by id, says; blocks that have moved or gone are dropped.
  const std::vector<PlacedBlock>& read(std::span<const Bytes> offsets);

 private:
  bool is_lower(const PlacedBlock& a, const PlacedBlock& b) const;

  By by_;
  std::vector<PlacedBlock> sorted_, added_;
};

// Blocks are named by their index. A window of time lists its live blocks by offset.
class MovableBlocks {
 public:
  // Keeps a reference to `blocks`, which are not placed yet.
  explicit MovableBlocks(std::span<const Block> blocks);

  void clear();
  void add(std::uint32_t id, Bytes offset);
  void remove(std::uint32_t id);
  bool has(std::uint32_t id) const { return offsets_[id] != no_offset; }
  // Offsets by id; no_offset for a block without a place.
  const std::vector<Bytes>& offsets() const { return offsets_; }

  // Finds the standing blocks that are live together with a block, for the two orders below.
  void look_around(std::uint32_t id);
  const std::vector<PlacedBlock>& by_offset() const { return by_offset_; }
  // Takes longer than by_offset. Requires that no block has moved since look_around.
  const std::vector<PlacedBlock>& by_end();
  // Measures the work: roughly the number of standing blocks looked at so far.
  std::uint64_t looks() const { return looks_; }

 private:
  std::size_t first_window(std::uint32_t id) const { return times_.at(blocks_[id].first); }
  std::size_t last_window(std::uint32_t id) const { return times_.at(blocks_[id].last - 1); }
  bool lives_long(std::uint32_t id) const;
  void gather(const Block& block);
  void pick(const std::vector<PlacedBlock>& from, std::vector<PlacedBlock>& into);

  std::span<const Block> blocks_;
  Windows times_;
  std::vector<std::vector<PlacedBlock>> windows_;  // each window's blocks, by offset
  std::vector<Bytes> offsets_;
  LazyOrder all_by_offset_{LazyOrder::By::offset}, all_by_end_{LazyOrder::By::end};
  std::uint32_t looked_at_ = 0;
  std::uint64_t looks_ = 0;
  std::vector<PlacedBlock> by_offset_, by_end_, late_;
};

}  // namespace stowage::placement
