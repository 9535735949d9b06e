#include "src/placement/movable_blocks.h"

#include <algorithm>
#include <cstddef>

namespace stowage::placement {
namespace {

// The most windows that are put together for one block; for a longer block all blocks are looked through.
constexpr std::size_t most_gathered = 3;

bool is_lower(const PlacedBlock& a, const PlacedBlock& b) { return a.offset < b.offset; }
bool ends_lower(const PlacedBlock& a, const PlacedBlock& b) { return a.end < b.end; }

using Difference = std::vector<PlacedBlock>::difference_type;

}  // namespace

void LazyOrder::clear() {
  sorted_.clear();
  added_.clear();
}

bool LazyOrder::is_lower(const PlacedBlock& a, const PlacedBlock& b) const {
  const Bytes of_a = by_ == By::end ? a.end : a.offset, of_b = by_ == By::end ? b.end : b.offset;
  return of_a != of_b ? of_a < of_b : a.id < b.id;
}

const std::vector<PlacedBlock>& LazyOrder::read(std::span<const Bytes> offsets) {
  const auto lower = [this](const PlacedBlock& a, const PlacedBlock& b) { return is_lower(a, b); };
  const auto is_stale = [&](const PlacedBlock& block) { return offsets[block.id] != block.offset; };
  std::erase_if(added_, is_stale);
  std::erase_if(sorted_, is_stale);
  std::sort(added_.begin(), added_.end(), lower);
  const auto before = static_cast<Difference>(sorted_.size());
  sorted_.insert(sorted_.end(), added_.begin(), added_.end());
  added_.clear();
  std::inplace_merge(sorted_.begin(), sorted_.begin() + before, sorted_.end(), lower);
  // Removes duplicates: blocks that left and came back to the same place.
  const auto same = [](const PlacedBlock& a, const PlacedBlock& b) { return a.id == b.id; };
  sorted_.erase(std::unique(sorted_.begin(), sorted_.end(), same), sorted_.end());
  return sorted_;
}

MovableBlocks::MovableBlocks(std::span<const Block> blocks)
    : blocks_(blocks), times_(blocks), windows_(times_.count()), offsets_(blocks.size(), no_offset) {}

void MovableBlocks::clear() {
  for (std::vector<PlacedBlock>& window : windows_) window.clear();
  std::fill(offsets_.begin(), offsets_.end(), no_offset);
  all_by_offset_.clear();
  all_by_end_.clear();
}

void MovableBlocks::add(std::uint32_t id, Bytes offset) {
  const Block& block = blocks_[id];
  const PlacedBlock standing{offset, offset + block.aligned, block.first, block.last, id};
  const std::size_t last = last_window(id);
  for (std::size_t w = first_window(id); w <= last; ++w) {
    std::vector<PlacedBlock>& window = windows_[w];
    window.insert(std::upper_bound(window.begin(), window.end(), standing, placement::is_lower), standing);
  }
  offsets_[id] = offset;
  all_by_offset_.add(standing);
  all_by_end_.add(standing);
}

void MovableBlocks::remove(std::uint32_t id) {
  const PlacedBlock standing{offsets_[id], 0, 0, 0, id};
  const std::size_t last = last_window(id);
  for (std::size_t w = first_window(id); w <= last; ++w) {
    std::vector<PlacedBlock>& window = windows_[w];
    auto at = std::lower_bound(window.begin(), window.end(), standing, placement::is_lower);
    while (at->id != id) ++at;
    window.erase(at);
  }
  offsets_[id] = no_offset;
}

bool MovableBlocks::lives_long(std::uint32_t id) const {
  return last_window(id) - first_window(id) >= most_gathered;
}

// Appends the blocks of `from` that are live together with the current block.
void MovableBlocks::pick(const std::vector<PlacedBlock>& from, std::vector<PlacedBlock>& into) {
  looks_ += from.size();
  const Block& block = blocks_[looked_at_];
  for (const PlacedBlock& other : from)
    if (other.meets(block)) into.push_back(other);
}

// Collects the block's neighbours: all of its first window's, and from each later window the blocks that
// start in it.
void MovableBlocks::gather(const Block& block) {
  const std::size_t first = times_.at(block.first), last = times_.at(block.last - 1);
  pick(windows_[first], by_offset_);
  for (std::size_t w = first + 1; w <= last; ++w) {
    const auto before = static_cast<Difference>(by_offset_.size());
    looks_ += windows_[w].size();
    for (const PlacedBlock& other : windows_[w])
      if (other.meets(block) && !times_.starts_before(other.first, w)) by_offset_.push_back(other);
    std::inplace_merge(by_offset_.begin(), by_offset_.begin() + before, by_offset_.end(),
                       placement::is_lower);
  }
}

void MovableBlocks::look_around(std::uint32_t id) {
  looked_at_ = id;
  by_offset_.clear();
  if (lives_long(id)) {
    pick(all_by_offset_.read(offsets_), by_offset_);
  } else {
    gather(blocks_[id]);
  }
}

// Few neighbours of a short block end below a neighbour that begins lower: only these are sorted, and
// then merged.
const std::vector<PlacedBlock>& MovableBlocks::by_end() {
  by_end_.clear();
  if (lives_long(looked_at_)) {
    pick(all_by_end_.read(offsets_), by_end_);
    return by_end_;
  }
  late_.clear();
  for (const PlacedBlock& other : by_offset_) {
    const bool is_late = !by_end_.empty() && other.end < by_end_.back().end;
    (is_late ? late_ : by_end_).push_back(other);
  }
  std::sort(late_.begin(), late_.end(), ends_lower);
  const auto before = static_cast<Difference>(by_end_.size());
  by_end_.insert(by_end_.end(), late_.begin(), late_.end());
  std::inplace_merge(by_end_.begin(), by_end_.begin() + before, by_end_.end(), ends_lower);
  return by_end_;
}

}  // namespace stowage::placement
