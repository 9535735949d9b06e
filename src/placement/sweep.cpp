#include "src/placement/methods.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>

namespace stowage::placement {
namespace {

// The gaps below the highest live byte.
class Gaps {
 public:
  Bytes take(Bytes bytes) {
    const auto tightest = by_size_.lower_bound({bytes, 0});
    if (tightest == by_size_.end()) return grow(bytes);
    const auto [size, offset] = *tightest;
    erase(ends_.find(offset));
    if (size > bytes) insert(offset + bytes, offset + size);
    return offset;
  }

  void give_back(Bytes offset, Bytes bytes) {
    Bytes end = offset + bytes;
    auto above = ends_.lower_bound(offset);
    if (above != ends_.end() && above->first == end) {
      end = above->second;
      above = erase(above);
    }
    if (above != ends_.begin() && std::prev(above)->second == offset) {
      offset = std::prev(above)->first;
      erase(std::prev(above));
    }
    if (end == top_) {
      top_ = offset;
    } else {
      insert(offset, end);
    }
  }

 private:
  using Ends = std::map<Bytes, Bytes>;  // the gaps' ends, by their starts

  Bytes grow(Bytes bytes) {
    const Bytes offset = top_;
    top_ += bytes;
    return offset;
  }
  void insert(Bytes offset, Bytes end) {
    ends_[offset] = end;
    by_size_.insert({end - offset, offset});
  }
  Ends::iterator erase(Ends::iterator gap) {
    by_size_.erase({gap->second - gap->first, gap->first});
    return ends_.erase(gap);
  }

  Ends ends_;
  std::set<std::pair<Bytes, Bytes>> by_size_;
  Bytes top_ = 0;
};

}  // namespace

std::vector<Bytes> sweep(std::span<const PlacementItem> items, Bytes alignment) {
  std::vector<std::size_t> starts(items.size());
  std::iota(starts.begin(), starts.end(), std::size_t{0});
  std::vector<std::size_t> ends = starts;
  std::stable_sort(starts.begin(), starts.end(), [&](std::size_t a, std::size_t b) {
    return items[a].first != items[b].first ? items[a].first < items[b].first
                                            : items[a].bytes > items[b].bytes;
  });
  std::stable_sort(ends.begin(), ends.end(),
                   [&](std::size_t a, std::size_t b) { return items[a].last < items[b].last; });
  std::vector<Bytes> offsets(items.size(), 0);
  Gaps gaps;
  auto dead = ends.begin();
  for (const std::size_t i : starts) {
    for (; items[*dead].last <= items[i].first; ++dead) {
      gaps.give_back(offsets[*dead], align_up(items[*dead].bytes, alignment));
    }
    offsets[i] = gaps.take(align_up(items[i].bytes, alignment));
  }
  return offsets;
}

}  // namespace stowage::placement
