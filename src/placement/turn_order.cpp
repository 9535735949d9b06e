#include "src/placement/turn_order.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace stowage::placement {

TurnOrder::TurnOrder(std::span<const PlacementItem> items) : items_(items), order_(items.size()) {
  std::iota(order_.begin(), order_.end(), 0U);
  std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tuple(items[a].first, items[b].bytes) < std::tuple(items[b].first, items[a].bytes);
  });
  repeats_ = find_repeats(kinds());
}

// By turn: the same number where items are alike.
std::vector<std::uint32_t> TurnOrder::kinds() const {
  std::map<std::tuple<Bytes, std::int64_t, std::int64_t>, std::uint32_t> known;
  std::vector<std::uint32_t> kinds;
  std::int64_t before = 0;
  for (std::uint32_t id : order_) {
    const PlacementItem& item = items_[id];
    const std::tuple kind(item.bytes, item.last - item.first, item.first - before);
    kinds.push_back(known.emplace(kind, static_cast<std::uint32_t>(known.size())).first->second);
    before = item.first;
  }
  return kinds;
}

std::int64_t TurnOrder::shift(std::size_t from, std::size_t to) const {
  return items_[order_[to]].first - items_[order_[from]].first;
}

const Repeat* TurnOrder::stretch_at(std::size_t turn) const {
  const auto behind = std::upper_bound(repeats_.begin(), repeats_.end(), turn,
                                       [](std::size_t at, const Repeat& each) { return at < each.begin; });
  return behind == repeats_.begin() || turn >= std::prev(behind)->end ? nullptr : &*std::prev(behind);
}

std::size_t TurnOrder::apart(std::size_t periods) const {
  std::size_t turns = items_.size();
  for (const Repeat& repeat : repeats_)
    turns -= repeat.end - repeat.begin - std::min(repeat.end - repeat.begin, periods * repeat.period);
  return std::max<std::size_t>(turns, 1);
}

std::size_t TurnOrder::live_on_average() const {
  std::int64_t length = 0, end = 0;
  for (const PlacementItem& item : items_) {
    length += item.last - item.first;
    end = std::max(end, item.last);
  }
  const std::int64_t begin = order_.empty() ? 0 : items_[order_.front()].first;
  return static_cast<std::size_t>(end > begin ? length / (end - begin) : 0) + 1;
}

}  // namespace stowage::placement
