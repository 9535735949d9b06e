#include "offload/plan/schedule/live_bytes.h"

#include <algorithm>
#include <bit>

namespace stowage {

LiveBytes::LiveBytes(Position positions)
    : size_(
          static_cast<Position>(std::bit_ceil(static_cast<std::uint64_t>(std::max<Position>(1, positions))))),
      nodes_(static_cast<std::size_t>(2 * size_)) {}

LiveBytes::LiveBytes(const std::vector<Bytes>& at) : LiveBytes(static_cast<Position>(at.size())) {
  for (std::size_t i = 0; i < at.size(); ++i) {
    Node& leaf = nodes_[static_cast<std::size_t>(size_) + i];
    leaf.added = leaf.most = at[i];
  }
  for (auto node = static_cast<std::size_t>(size_); --node > 0;) look_below(node);
}

void LiveBytes::add(Position first, Position last, Bytes bytes) {
  if (first >= last || bytes == 0) return;
  const auto raise = [&](std::size_t node) {
    nodes_[node].added += bytes;
    nodes_[node].most += bytes;
  };
  const auto begin = static_cast<std::size_t>(size_ + first), end = static_cast<std::size_t>(size_ + last);
  for (std::size_t left = begin, right = end; left < right; left /= 2, right /= 2) {
    if (left % 2 == 1) raise(left++);
    if (right % 2 == 1) raise(--right);
  }
  for (std::size_t left = begin / 2, right = (end - 1) / 2; left > 0; left /= 2, right /= 2) {
    look_below(left);
    if (right != left) look_below(right);
  }
}
void LiveBytes::look_below(std::size_t node) {
  nodes_[node].most = nodes_[node].added + std::max(nodes_[2 * node].most, nodes_[2 * node + 1].most);
}

Bytes LiveBytes::most() const { return nodes_[1].most; }

Bytes LiveBytes::at(Position position) const {
  Bytes bytes = 0;
  for (auto node = static_cast<std::size_t>(size_ + position); node > 0; node /= 2)
    bytes += nodes_[node].added;
  return bytes;
}

Position LiveBytes::last_above(Position first, Position last, Bytes limit) const {
  if (first >= last) return first - 1;
  const Position found = last_above(1, 0, size_, first, last, static_cast<std::int64_t>(limit));
  return found < 0 ? first - 1 : found;
}

// `limit` less what was added above this node. -1: none.
Position LiveBytes::last_above(std::size_t node, Position begin, Position end, Position first, Position last,
                               std::int64_t limit) const {
  const Node& at = nodes_[node];
  if (last <= begin || end <= first || static_cast<std::int64_t>(at.most) <= limit) return -1;
  if (end - begin == 1) return begin;
  limit -= static_cast<std::int64_t>(at.added);
  const Position middle = begin + (end - begin) / 2;
  const Position right = last_above(2 * node + 1, middle, end, first, last, limit);
  return right >= 0 ? right : last_above(2 * node, begin, middle, first, last, limit);
}

}  // namespace stowage
