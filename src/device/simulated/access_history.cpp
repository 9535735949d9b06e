#include "src/device/simulated/access_history.h"

#include <algorithm>

namespace stowage::simulated {

std::uint32_t ReaderPool::push(const Stamp& stamp, std::uint32_t list) {
  if (free_ == none) {
    nodes_.push_back({stamp, list});
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  const std::uint32_t node = free_;
  free_ = nodes_[node].next;
  nodes_[node] = {stamp, list};
  return node;
}

std::uint32_t ReaderPool::copy(std::uint32_t list) {
  std::uint32_t result = none;
  for (; list != none; list = nodes_[list].next) {
    const Stamp reader = nodes_[list].stamp;
    result = push(reader, result);
  }
  return result;
}

void ReaderPool::release(std::uint32_t list) {
  while (list != none) {
    const std::uint32_t next = nodes_[list].next;
    nodes_[list].next = free_;
    free_ = list;
    list = next;
  }
}

std::uint32_t ReaderPool::without_covered(std::uint32_t list, const VectorClock& clock) {
  std::uint32_t kept = none;
  while (list != none) {
    const std::uint32_t next = nodes_[list].next;
    std::uint32_t& other = clock.covers(nodes_[list].stamp.lane, nodes_[list].stamp.tick) ? free_ : kept;
    nodes_[list].next = other;
    other = list;
    list = next;
  }
  return kept;
}

void AccessHistory::reset(Bytes bytes, bool defined) {
  for (const Segment& segment : segments_) readers_->release(segment.readers);
  segments_.clear();
  segments_.reserve(64);
  segments_.push_back({0, bytes, {}, ReaderPool::none, defined});
}

std::optional<Conflict> AccessHistory::find_unordered(Bytes begin, Bytes end, AccessMode mode,
                                                      const VectorClock& clock) const {
  for (std::size_t i = index_at(begin); i < segments_.size() && segments_[i].begin < end; ++i) {
    const Segment& segment = segments_[i];
    const Bytes from = std::max(begin, segment.begin), to = std::min(end, segment.end);
    if (!clock.covers(segment.writer.lane, segment.writer.tick) && segment.writer.tick != 0)
      return Conflict{segment.writer, true, from, to};
    if (mode == AccessMode::read) continue;
    for (std::uint32_t node = segment.readers; node != ReaderPool::none; node = readers_->next(node)) {
      const Stamp& reader = readers_->stamp(node);
      if (!clock.covers(reader.lane, reader.tick)) return Conflict{reader, false, from, to};
    }
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
    segments_[i].readers = readers_->push(stamp, readers_->without_covered(segments_[i].readers, clock));
}

void AccessHistory::write(Bytes begin, Bytes end, const Stamp& stamp, bool defined) {
  const std::size_t first = split_at(begin), last = split_at(end);
  for (std::size_t i = first; i < last; ++i) readers_->release(segments_[i].readers);
  segments_[first] = {begin, end, stamp, ReaderPool::none, defined};
  const auto at = segments_.begin();
  segments_.erase(at + static_cast<std::ptrdiff_t>(first) + 1, at + static_cast<std::ptrdiff_t>(last));
  merge_with_left(first);
}

std::size_t AccessHistory::index_at(Bytes position) const {
  const auto found =
      std::upper_bound(segments_.begin(), segments_.end(), position,
                       [](Bytes value, const Segment& segment) { return value < segment.end; });
  return static_cast<std::size_t>(found - segments_.begin());
}

std::size_t AccessHistory::split_at(Bytes position) {
  const std::size_t index = index_at(position);
  if (index == segments_.size() || segments_[index].begin == position) return index;
  Segment right = segments_[index];
  right.begin = position;
  right.readers = readers_->copy(right.readers);
  segments_[index].end = position;
  segments_.insert(segments_.begin() + static_cast<std::ptrdiff_t>(index) + 1, right);
  return index + 1;
}

// Joins only pieces that one operation wrote.
void AccessHistory::merge_with_left(std::size_t index) {
  if (index == 0) return;
  Segment& left = segments_[index - 1];
  const Segment& right = segments_[index];
  if (left.readers != ReaderPool::none || left.defined != right.defined || left.writer != right.writer)
    return;
  left.end = right.end;
  segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(index));
}

}  // namespace stowage::simulated
