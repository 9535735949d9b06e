#include "allocator/pending.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stowage::caching {

void join(Tags& tags, const Tag& tag) {
  for (Tag& known : tags)
    if (known.clock == tag.clock) {
      known.count = std::max(known.count, tag.count);
      return;
    }
  tags.push_back(tag);
}

bool Pending::Piece::passed() const {
  return std::all_of(tags.begin(), tags.end(), [](const Tag& tag) { return tag.passed(); });
}

Pending::Map::const_iterator Pending::first_behind(Bytes position) const {
  auto at = pieces_.upper_bound(position);
  if (at != pieces_.begin() && std::prev(at)->second.end > position) --at;
  return at;
}

void Pending::add(Interval range, Tags tags) {
  std::erase_if(tags, [](const Tag& tag) { return tag.passed(); });
  if (tags.empty()) return;
  const auto next = pieces_.lower_bound(range.end);
  if (next != pieces_.end() && next->first == range.end && next->second.passed()) pieces_.erase(next);
  if (!merge_left(range, tags)) pieces_.insert_or_assign(range.begin, Piece{range.end, std::move(tags)});
}

// Neighbouring pieces of one lane become one piece with the later tag.
bool Pending::merge_left(Interval range, const Tags& tags) {
  const auto at = pieces_.lower_bound(range.begin);
  if (at == pieces_.begin()) return false;
  const auto left = std::prev(at);
  if (left->second.end != range.begin) return false;
  if (left->second.passed()) {
    pieces_.erase(left);
    return false;
  }
  if (left->second.tags.size() != 1 || tags.size() != 1 || left->second.tags[0].clock != tags[0].clock)
    return false;
  left->second.end = range.end;
  left->second.tags[0].count = std::max(left->second.tags[0].count, tags[0].count);
  return true;
}

void Pending::cut(Interval range) {
  for (auto at = first_behind(range.begin); at != pieces_.end() && at->first < range.end;) {
    const Bytes begin = at->first;
    Piece piece = at->second;
    at = pieces_.erase(at);
    if (begin < range.begin) pieces_.emplace(begin, Piece{range.begin, piece.tags});
    if (piece.end > range.end) at = std::next(pieces_.emplace(range.end, std::move(piece)).first);
  }
}

Tags Pending::in(Interval range) const {
  Tags tags;
  for (auto at = first_behind(range.begin); at != pieces_.end() && at->first < range.end; ++at)
    for (const Tag& tag : at->second.tags)
      if (!tag.passed()) join(tags, tag);
  return tags;
}

bool Pending::any_in(Interval range) const {
  for (auto at = first_behind(range.begin); at != pieces_.end() && at->first < range.end; ++at)
    if (!at->second.passed()) return true;
  return false;
}

Bytes Pending::last_foreign_end(Interval range, const LaneClock& lane) const {
  Bytes last = 0;
  for (auto at = first_behind(range.begin); at != pieces_.end() && at->first < range.end; ++at)
    for (const Tag& tag : at->second.tags)
      if (tag.clock != &lane && !tag.passed()) last = at->second.end;
  return last;
}

Tags Pending::all() {
  std::erase_if(pieces_, [](const auto& piece) { return piece.second.passed(); });
  Tags tags;
  for (const auto& [begin, piece] : pieces_)
    for (const Tag& tag : piece.tags)
      if (!tag.passed()) join(tags, tag);
  return tags;
}

}  // namespace stowage::caching
