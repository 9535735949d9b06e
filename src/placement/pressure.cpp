#include "src/placement/pressure.h"

#include <algorithm>
#include <numeric>

namespace stowage::placement {

Pressure::Pressure(std::span<const PlacementItem> items, Bytes alignment)
    : items_(items), alignment_(alignment) {
  starts_.reserve(items.size());
  for (const PlacementItem& item : items) starts_.push_back(item.first);
  std::sort(starts_.begin(), starts_.end());
  starts_.erase(std::unique(starts_.begin(), starts_.end()), starts_.end());

  std::vector<Bytes> change(starts_.size() + 1, 0);  // differences may wrap, their sums do not
  for (const PlacementItem& item : items) {
    change[index(item.first)] += align_up(item.bytes, alignment);
    change[index(item.last)] -= align_up(item.bytes, alignment);
  }
  live_.assign(2 * starts_.size(), 0);
  std::partial_sum(change.begin(), change.end() - 1,
                   live_.begin() + static_cast<std::ptrdiff_t>(starts_.size()));
  for (std::size_t node = starts_.size(); node-- > 1;) {
    live_[node] = std::max(live_[2 * node], live_[2 * node + 1]);
  }
}

std::size_t Pressure::index(std::int64_t position) const {
  return static_cast<std::size_t>(std::lower_bound(starts_.begin(), starts_.end(), position) -
                                  starts_.begin());
}

Bytes Pressure::most_within(const PlacementItem& item) const {
  Bytes most = 0;
  std::size_t begin = starts_.size() + index(item.first);
  std::size_t end = starts_.size() + index(item.last);
  for (; begin < end; begin /= 2, end /= 2) {
    if (begin % 2 == 1) most = std::max(most, live_[begin++]);
    if (end % 2 == 1) most = std::max(most, live_[--end]);
  }
  return most;
}

// Returns, by start, the largest slack of the items live there. Slacks are spread from the largest down, each
// over the starts that no larger one has reached.
std::vector<Bytes> Pressure::largest_slacks() const {
  std::vector<std::pair<Bytes, std::size_t>> order;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const Bytes slack = align_up(items_[i].bytes, alignment_) - items_[i].bytes;
    if (slack != 0) order.emplace_back(slack, i);
  }
  std::sort(order.rbegin(), order.rend());
  std::vector<Bytes> slacks(starts_.size(), 0);
  // Leads to the next start that was not reached; use shortens the way.
  std::vector<std::size_t> free(starts_.size() + 1);
  std::iota(free.begin(), free.end(), std::size_t{0});
  const auto next = [&](std::size_t at) {
    while (free[at] != at) at = free[at] = free[free[at]];
    return at;
  };
  for (const auto& [slack, i] : order) {
    const std::size_t end = index(items_[i].last);
    for (std::size_t at = next(index(items_[i].first)); at < end; at = next(at)) {
      slacks[at] = slack;
      free[at] = at + 1;
    }
  }
  return slacks;
}

Bytes Pressure::bound() const {
  const std::vector<Bytes> slacks = largest_slacks();
  Bytes bound = 0;
  for (std::size_t i = 0; i < slacks.size(); ++i) {
    bound = std::max(bound, live_[starts_.size() + i] - slacks[i]);
  }
  return bound;
}

}  // namespace stowage::placement
