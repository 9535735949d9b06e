#include "tests/offload/oracle/exact_placement.h"

#include <algorithm>
#include <numeric>

namespace stowage::oracle {
namespace {

class Packer {
 public:
  Packer(const std::vector<PlacedItem>& items, Bytes limit, Bytes alignment, std::size_t most_nodes)
      : items_(items), limit_(align_up(limit, alignment)), exact_limit_(limit), nodes_left_(most_nodes) {
    std::size_t slices = 0;
    for (const PlacedItem& item : items) {
      size_.push_back(align_up(item.bytes, alignment));
      for (std::size_t slice : item.slices) slices = std::max(slices, slice + 1);
    }
    slices_.resize(slices);
    for (std::size_t i = 0; i < items.size(); ++i)
      for (std::size_t slice : items[i].slices) slices_[slice].left += size_[i];
    offset_.assign(items.size(), 0);
    placed_.assign(items.size(), 0);
    by_size_.resize(items.size());
    std::iota(by_size_.begin(), by_size_.end(), std::size_t{0});
    std::stable_sort(by_size_.begin(), by_size_.end(), [&](std::size_t a, std::size_t b) {
      const std::size_t spread_a = items[a].slices.size(), spread_b = items[b].slices.size();
      return spread_a * size_[a] > spread_b * size_[b];
    });
  }

  ExactPlacement run() {
    ExactPlacement result;
    if (may_fit(0) && extend(0, 0, 0)) result.offsets = offset_;
    result.complete = result.offsets || nodes_left_ > 0;
    return result;
  }

 private:
  struct Slice {
    Bytes height = 0;  // the end of what is placed
    Bytes left = 0;    // of items not placed yet
  };

  Bytes floor_of(std::size_t item) const {
    Bytes floor = 0;
    for (std::size_t slice : items_[item].slices) floor = std::max(floor, slices_[slice].height);
    return floor;
  }
  // Whether the rest of each slice fits above `lowest`.
  bool may_fit(Bytes lowest) const {
    return std::all_of(slices_.begin(), slices_.end(), [&](const Slice& slice) {
      return slice.left == 0 || std::max(slice.height, lowest) + slice.left <= limit_;
    });
  }

  // Places the rest, none lower than `lowest`; at the same height in the order of by_size_.
  bool extend(std::size_t done, Bytes lowest, std::size_t first) {
    if (done == items_.size()) return true;
    if (nodes_left_ == 0) return false;
    --nodes_left_;
    struct Candidate {
      Bytes floor;
      std::size_t rank;
    };
    std::vector<Candidate> candidates;
    for (std::size_t rank = 0; rank < by_size_.size(); ++rank) {
      if (placed_[by_size_[rank]]) continue;
      const Bytes floor = floor_of(by_size_[rank]);
      if (floor > lowest || (floor == lowest && rank >= first)) candidates.push_back({floor, rank});
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.floor < b.floor; });
    for (const Candidate& candidate : candidates) {
      if (!may_fit(candidate.floor)) break;  // nor above any later one
      if (place(by_size_[candidate.rank], candidate.floor, done, candidate.rank)) return true;
    }
    return false;
  }
  bool place(std::size_t item, Bytes floor, std::size_t done, std::size_t rank) {
    if (floor + items_[item].bytes > exact_limit_) return false;
    std::vector<Bytes> heights;
    for (std::size_t slice : items_[item].slices) {
      heights.push_back(slices_[slice].height);
      slices_[slice].height = floor + size_[item];
      slices_[slice].left -= size_[item];
    }
    placed_[item] = 1;
    offset_[item] = floor;
    if (may_fit(floor) && extend(done + 1, floor, rank + 1)) return true;
    placed_[item] = 0;
    for (std::size_t i = 0; i < heights.size(); ++i) {
      slices_[items_[item].slices[i]].height = heights[i];
      slices_[items_[item].slices[i]].left += size_[item];
    }
    return false;
  }

  const std::vector<PlacedItem>& items_;
  Bytes limit_, exact_limit_;
  std::size_t nodes_left_;
  std::vector<Bytes> size_, offset_;  // by item
  std::vector<std::uint8_t> placed_;
  std::vector<std::size_t> by_size_;
  std::vector<Slice> slices_;
};

}  // namespace

ExactPlacement place_exactly(const std::vector<PlacedItem>& items, Bytes limit, Bytes alignment,
                             std::size_t most_nodes) {
  return Packer(items, limit, alignment, most_nodes).run();
}

}  // namespace stowage::oracle
