#include "src/placement/instance.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace stowage::placement {
namespace {

using Indices = std::vector<std::uint32_t>;

// Maps positions of the input to sections.
class Axis {
 public:
  Axis(std::span<const PlacementItem> items, const Indices& indices) {
    for (const std::uint32_t i : indices) {
      positions_.push_back(items[i].first);
      positions_.push_back(items[i].last);
    }
    std::sort(positions_.begin(), positions_.end());
    positions_.erase(std::unique(positions_.begin(), positions_.end()), positions_.end());
    std::vector<bool> starts(positions_.size()), ends(positions_.size());
    for (const std::uint32_t i : indices) {
      starts[at(items[i].first)] = true;
      ends[at(items[i].last)] = true;
    }
    // A section lies between two adjacent positions if an item starts at the first and one ends at the
    // second: no more items are live shortly before or after.
    section_.assign(positions_.size(), 0);
    for (std::size_t p = 0; p + 1 < positions_.size(); ++p) {
      section_[p + 1] = section_[p] + (starts[p] && ends[p + 1] ? 1 : 0);
    }
  }

  int section(std::int64_t position) const { return section_[at(position)]; }
  int sections() const { return section_.back(); }

 private:
  std::size_t at(std::int64_t position) const {
    return static_cast<std::size_t>(std::lower_bound(positions_.begin(), positions_.end(), position) -
                                    positions_.begin());
  }

  std::vector<std::int64_t> positions_;
  std::vector<int> section_;  // number of sections before each position
};

Instance make_instance(std::span<const PlacementItem> items, Indices indices, Bytes alignment) {
  const Axis axis(items, indices);
  Instance instance;
  instance.sections = axis.sections();
  instance.unit = 0;
  for (const std::uint32_t i : indices) {
    instance.unit = std::gcd(instance.unit, align_up(items[i].bytes, alignment));
  }
  for (const std::uint32_t i : indices) {
    const Bytes aligned = align_up(items[i].bytes, alignment);
    instance.items.push_back({axis.section(items[i].first), axis.section(items[i].last),
                              static_cast<std::int64_t>(aligned / instance.unit), aligned - items[i].bytes});
  }
  instance.indices = std::move(indices);
  return instance;
}

}  // namespace

std::uint64_t Instance::cells() const {
  std::uint64_t cells = 0;
  for (const Item& item : items) cells += static_cast<std::uint64_t>(item.width());
  return cells;
}

Deadline Instance::deadline(Bytes capacity) const {
  Deadline deadline;
  deadline.units = static_cast<std::int64_t>(capacity / unit);
  const Bytes rest = capacity % unit;
  for (const Item& item : items) deadline.late.push_back(rest + item.slack >= unit);
  return deadline;
}

Bytes Instance::next_peak(Bytes capacity) const {
  Bytes next = std::numeric_limits<Bytes>::max();
  for (const Item& item : items) {
    const Bytes units = (capacity + item.slack) / unit + 1;
    next = std::min(next, units * unit - item.slack);
  }
  return next;
}

std::vector<Instance> split(std::span<const PlacementItem> items, Bytes alignment) {
  Indices order(items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return items[a].first < items[b].first; });
  std::vector<Instance> parts;
  Indices part;
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const std::uint32_t i : order) {
    if (!part.empty() && items[i].first >= end) {
      parts.push_back(make_instance(items, std::move(part), alignment));
      part.clear();
    }
    part.push_back(i);
    end = std::max(end, items[i].last);
  }
  if (!part.empty()) parts.push_back(make_instance(items, std::move(part), alignment));
  return parts;
}

}  // namespace stowage::placement
