#include "src/device/simulated/access_history.h"

#include <algorithm>

namespace stowage::simulated {

void AccessHistory::reset(Bytes bytes, bool defined) {
  segments_.clear();
  nodes_.clear();
  free_nodes_ = none;
  segments_.push_back({0, bytes, {}, none, defined});
}

std::optional<Conflict> AccessHistory::find_unordered(Bytes begin, Bytes end, AccessMode mode,
                                                      const VectorClock& clock) const {
  for (std::size_t i = index_at(begin); i < segments_.size() && segments_[i].begin < end; ++i) {
    const Segment& segment = segments_[i];
    const Bytes from = std::max(begin, segment.begin), to = std::min(end, segment.end);
    if (!clock.covers(segment.writer.lane, segment.writer.tick) && segment.writer.tick != 0)
      return Conflict{segment.writer, true, from, to};
    if (mode == AccessMode::read) continue;
    for (std::uint32_t node = segment.readers; node != none; node = nodes_[node].next)
      if (!clock.covers(nodes_[node].stamp.lane, nodes_[node].stamp.tick))
        return Conflict{nodes_[node].stamp, false, from, to};
  }
  return std::nullopt;
}

std::optional<UndefinedBytes> AccessHistory::find_undefined(Bytes begin, Bytes end) const {
  for (std::size_t i = index_at(begin); i < segments_.size() && segments_[i].begin < end; ++i)
    if (!segments_[i].defined)
      return UndefinedBytes{std::max(begin, segments_[i].begin), std::min(end, segments_[i].end),
                            segments_[i].writer};
  return std::nullopt;
}

void AccessHistory::read(Bytes begin, Bytes end, const Stamp& stamp, const VectorClock& clock) {
  const std::size_t first = split_at(begin), last = split_at(end);
  for (std::size_t i = first; i < last; ++i)
    segments_[i].readers = new_node(stamp, without_covered(segments_[i].readers, clock));
}

void AccessHistory::write(Bytes begin, Bytes end, const Stamp& stamp, bool defined) {
  const std::size_t first = split_at(begin), last = split_at(end);
  for (std::size_t i = first; i < last; ++i) free_list(segments_[i].readers);
  segments_[first] = {begin, end, stamp, none, defined};
  const auto at = segments_.begin();
  segments_.erase(at + static_cast<std::ptrdiff_t>(first) + 1, at + static_cast<std::ptrdiff_t>(last));
  merge_with_left(first);
}

std::size_t AccessHistory::index_at(Bytes position) const {
  const auto found = std::upper_bound(segments_.begin(), segments_.end(), position,
                                      [](Bytes value, const Segment& segment) { return value < segment.end; });
  return static_cast<std::size_t>(found - segments_.begin());
}

std::size_t AccessHistory::split_at(Bytes position) {
  const std::size_t index = index_at(position);
  if (index == segments_.size() || segments_[index].begin == position) return index;
  Segment right = segments_[index];
  right.begin = position;
  right.readers = copy_list(right.readers);
  segments_[index].end = position;
  segments_.insert(segments_.begin() + static_cast<std::ptrdiff_t>(index) + 1, right);
  return index + 1;
}

// Only what one operation wrote in pieces is joined again.
void AccessHistory::merge_with_left(std::size_t index) {
  if (index == 0) return;
  Segment& left = segments_[index - 1];
  const Segment& right = segments_[index];
  if (left.readers != none || left.defined != right.defined || left.writer != right.writer) return;
  left.end = right.end;
  segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(index));
}

std::uint32_t AccessHistory::new_node(const Stamp& stamp, std::uint32_t next) {
  if (free_nodes_ == none) {
    nodes_.push_back({stamp, next});
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  const std::uint32_t node = free_nodes_;
  free_nodes_ = nodes_[node].next;
  nodes_[node] = {stamp, next};
  return node;
}

std::uint32_t AccessHistory::copy_list(std::uint32_t head) {
  std::uint32_t copy = none;
  for (std::uint32_t node = head; node != none; node = nodes_[node].next) {
    const Stamp stamp = nodes_[node].stamp;
    copy = new_node(stamp, copy);
  }
  return copy;
}

void AccessHistory::free_list(std::uint32_t head) {
  while (head != none) {
    const std::uint32_t next = nodes_[head].next;
    nodes_[head].next = free_nodes_;
    free_nodes_ = head;
    head = next;
  }
}

std::uint32_t AccessHistory::without_covered(std::uint32_t head, const VectorClock& clock) {
  std::uint32_t kept = none;
  while (head != none) {
    const std::uint32_t next = nodes_[head].next;
    const bool covered = clock.covers(nodes_[head].stamp.lane, nodes_[head].stamp.tick);
    std::uint32_t& list = covered ? free_nodes_ : kept;
    nodes_[head].next = list;
    list = head;
    head = next;
  }
  return kept;
}

}  // namespace stowage::simulated
