#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "stowage/placement.h"

namespace stowage {
namespace {

std::string describe_place(std::size_t index, const PlacementItem& item, Bytes offset) {
  return fmt::format("item {} ([{}, {}), {} bytes at {})", index, item.first, item.last, item.bytes, offset);
}

template <class Key>
std::vector<std::size_t> sorted_by(std::size_t size, Key key) {
  std::vector<std::size_t> order(size);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) < key(b); });
  return order;
}

// Walks through time with the live items by offset, of which only neighbours can share bytes.
std::string check_overlaps(std::span<const PlacementItem> items, const std::vector<Bytes>& offsets) {
  const std::vector<std::size_t> starts =
      sorted_by(items.size(), [&](std::size_t i) { return items[i].first; });
  const std::vector<std::size_t> ends = sorted_by(items.size(), [&](std::size_t i) { return items[i].last; });
  std::map<Bytes, std::size_t> live;
  auto dead = ends.begin();
  for (const std::size_t i : starts) {
    for (; items[*dead].last <= items[i].first; ++dead) live.erase(offsets[*dead]);
    const auto above = live.lower_bound(offsets[i]);
    const auto clash = [&](std::size_t other) {
      return describe_place(other, items[other], offsets[other]) + " and " +
             describe_place(i, items[i], offsets[i]) + " share bytes while both are live";
    };
    if (above != live.end() && above->first < offsets[i] + items[i].bytes) return clash(above->second);
    if (above != live.begin()) {
      const auto& [offset, below] = *std::prev(above);
      if (offset + items[below].bytes > offsets[i]) return clash(below);
    }
    live.emplace_hint(above, offsets[i], i);
  }
  return {};
}

}  // namespace

std::string check_placement(std::span<const PlacementItem> items, const PlacementResult& result,
                            Bytes alignment) {
  if (result.offsets.size() != items.size()) {
    return fmt::format("{} offsets for {} items", result.offsets.size(), items.size());
  }
  Bytes peak = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Bytes offset = result.offsets[i];
    if (offset % alignment != 0) return describe_place(i, items[i], offset) + " is not aligned";
    if (offset + items[i].bytes < offset) return describe_place(i, items[i], offset) + " ends past 64 bits";
    peak = std::max(peak, offset + items[i].bytes);
  }
  if (result.peak != peak) return fmt::format("the peak is {}, not {}", peak, result.peak);
  return check_overlaps(items, result.offsets);
}

}  // namespace stowage
