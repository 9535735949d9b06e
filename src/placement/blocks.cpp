#include "src/placement/blocks.h"

#include <algorithm>
#include <limits>

namespace stowage::placement {
namespace {

constexpr std::size_t few = 64;
constexpr std::size_t sorting = 8;  // cost of sorting in a block, in looks

}  // namespace

PlacedBlocks::PlacedBlocks(std::span<const Block> blocks) : times_(blocks), windows_(times_.count()) {
  clear();
}

void PlacedBlocks::clear() {
  for (Window& window : windows_) window.clear();
  all_.clear();
  added_.clear();
  many_ = few;
}

void PlacedBlocks::add(const Block& block, Bytes offset) {
  const Placed placed{offset, offset + block.aligned, block.first, block.last};
  const std::size_t last = times_.at(block.last - 1);
  for (std::size_t w = times_.at(block.first); w <= last; ++w) {
    windows_[w].insert(std::upper_bound(windows_[w].begin(), windows_[w].end(), placed, is_lower), placed);
  }
  added_.push_back(placed);
}

Bytes PlacedBlocks::find_gap(const Block& block, Fit fit) {
  const std::size_t first = times_.at(block.first);
  if (first != times_.at(block.last - 1)) return gap_between(around(block), block, fit);
  looks_ += windows_[first].size();
  return gap_between(windows_[first], block, fit);
}

Bytes PlacedBlocks::find_gap_of_latest(const Block& block, Fit fit) {
  Window& placed = windows_[times_.at(block.first)];
  if (placed.size() > many_) {
    std::erase_if(placed, [&](const Placed& other) { return other.last <= block.first; });
    many_ = few + 2 * placed.size();
  }
  looks_ += placed.size();
  return gap_between(placed, block, fit);
}

// Collects and sorts the blocks of its windows if they are few; otherwise returns the list of all blocks,
// which is kept sorted.
const PlacedBlocks::Window& PlacedBlocks::around(const Block& block) {
  const std::size_t first = times_.at(block.first), last = times_.at(block.last - 1);
  std::size_t in_windows = 0;
  for (std::size_t w = first; w <= last; ++w) in_windows += windows_[w].size();
  const std::size_t all = all_.size() + added_.size();
  if (sorting * in_windows > all) {
    sort_in_added();
    looks_ += all;
    return all_;
  }
  gathered_.clear();
  for (std::size_t w = first; w <= last; ++w) {
    looks_ += windows_[w].size();
    for (const Placed& placed : windows_[w]) {
      const bool is_known = w > first && times_.starts_before(placed.first, w);
      if (!is_known && placed.first < block.last && block.first < placed.last) gathered_.push_back(placed);
    }
  }
  looks_ += sorting * gathered_.size();
  std::sort(gathered_.begin(), gathered_.end(), is_lower);
  return gathered_;
}

void PlacedBlocks::sort_in_added() {
  std::sort(added_.begin(), added_.end(), is_lower);
  all_.insert(all_.end(), added_.begin(), added_.end());
  std::inplace_merge(all_.begin(), all_.end() - static_cast<std::ptrdiff_t>(added_.size()), all_.end(),
                     is_lower);
  added_.clear();
}

Bytes PlacedBlocks::gap_between(const Window& placed, const Block& block, Fit fit) {
  constexpr Bytes no_gap = std::numeric_limits<Bytes>::max();
  Bytes top = 0;
  Bytes tightest = no_gap;
  Bytes chosen = no_gap;
  for (const Placed& other : placed) {
    if (other.last <= block.first || block.last <= other.first) continue;
    if (other.offset > top) {
      const Bytes gap = other.offset - top;
      if (gap >= block.aligned && gap < tightest) {
        if (fit == Fit::first) return top;
        tightest = gap;
        chosen = top;
      }
    }
    top = std::max(top, other.end);
  }
  return chosen != no_gap ? chosen : top;
}

}  // namespace stowage::placement
