// Placed blocks that are taken out again and placed elsewhere.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "src/placement/windows.h"

namespace stowage::placement {

inline constexpr Bytes no_offset = std::numeric_limits<Bytes>::max();

// A block and where it stands.
struct PlacedBlock {
  Bytes offset = 0;
  Bytes end = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::uint32_t id = 0;

  bool meets(const Block& block) const { return first < block.last && block.first < last; }
};

// All standing blocks in one order, which is brought up to date when it is read: many blocks come and go
// between two reads.
class LazyOrder {
 public:
  enum class By : std::uint8_t { offset, end };

  explicit LazyOrder(By by) : by_(by) {}
  void clear();
  void add(const PlacedBlock& block) { added_.push_back(block); }
  // `offsets` by id: what stands elsewhere by now, or nowhere, is left out.
  const std::vector<PlacedBlock>& read(std::span<const Bytes> offsets);

 private:
  bool is_lower(const PlacedBlock& a, const PlacedBlock& b) const;

  By by_;
  std::vector<PlacedBlock> sorted_, added_;
};

// Blocks are named by their index. A window of time lists those that are live in it by offset.
class MovableBlocks {
 public:
  // Keeps `blocks`. None of them is placed yet.
  explicit MovableBlocks(std::span<const Block> blocks);

  void clear();
  void add(std::uint32_t id, Bytes offset);
  void remove(std::uint32_t id);
  bool has(std::uint32_t id) const { return offsets_[id] != no_offset; }
  // By id; no_offset where it has no place.
  const std::vector<Bytes>& offsets() const { return offsets_; }

  // Finds those that are live together with a block, for the two orders below.
  void look_around(std::uint32_t id);
  const std::vector<PlacedBlock>& by_offset() const { return by_offset_; }
  // Takes longer. To be asked for before anything is moved.
  const std::vector<PlacedBlock>& by_end();
  // Standing blocks that have been looked at so far, about: the work it has done.
  std::uint64_t looks() const { return looks_; }

 private:
  std::size_t first_window(std::uint32_t id) const { return times_.at(blocks_[id].first); }
  std::size_t last_window(std::uint32_t id) const { return times_.at(blocks_[id].last - 1); }
  bool lives_long(std::uint32_t id) const;
  void gather(const Block& block);
  void pick(const std::vector<PlacedBlock>& from, std::vector<PlacedBlock>& into);

  std::span<const Block> blocks_;
  Windows times_;
  std::vector<std::vector<PlacedBlock>> windows_;  // each by offset
  std::vector<Bytes> offsets_;
  LazyOrder all_by_offset_{LazyOrder::By::offset}, all_by_end_{LazyOrder::By::end};
  std::uint32_t looked_at_ = 0;
  std::uint64_t looks_ = 0;
  std::vector<PlacedBlock> by_offset_, by_end_, late_;
};

}  // namespace stowage::placement
