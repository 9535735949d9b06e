#include "allocator/pool_heap.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace stowage::caching {
namespace {

bool better(const Place& a, const Place& b) {
  return std::make_tuple(a.need, a.granules.length(), a.unmapped, a.waits.size()) <
         std::make_tuple(b.need, b.granules.length(), b.unmapped, b.waits.size());
}

}  // namespace

PoolHeap::PoolHeap(Interval space, Bytes granule)
    : space_(space),
      granule_(granule),
      border_(space.begin + space.length() / 2 / granule * granule),
      zones_{GapIndex(granule), GapIndex(granule)} {
  if (space.begin < border_) zones_[0].add({space.begin, border_});
  zones_[1].add({border_, space.end});
}

std::optional<Place> PoolHeap::find(Bytes bytes, const LaneClock& lane, Need most, std::size_t breadth,
                                    bool may_wait) const {
  std::optional<Place> best;
  const std::size_t own = bytes < small_granules * granule_ ? 0 : 1;
  for (const std::size_t index : {own, 1 - own}) {
    const GapIndex& zone = zones_[index];
    // The other zone serves with what it has: no granule is mapped there for it while there is another way.
    const Need worst = index == own || breadth == all ? most : std::min(most, Need::waits);
    zone.for_each_place(bytes, breadth, [&](Interval at) {
      Place place = describe(zone, at, lane);
      if (!may_wait && !place.waits.empty()) return false;
      if (place.need <= worst && (!best || better(place, *best))) best = std::move(place);
      return best && best->need == Need::nothing;
    });
    if (best && best->need == Need::nothing) return best;
  }
  return best || may_wait ? best : find_beside(bytes, lane, most);
}

std::optional<Place> PoolHeap::find_beside(Bytes bytes, const LaneClock& lane, Need most) const {
  std::optional<Place> best;
  for (const GapIndex& zone : zones_)
    for (const auto& [begin, end] : zone.gaps())
      for (Bytes at = begin; bytes <= end - at;) {
        const Bytes behind = pending_.last_foreign_end({at, at + bytes}, lane);
        if (behind == 0) {
          Place place = describe(zone, {at, at + bytes}, lane);
          if (place.need <= most && (!best || better(place, *best))) best = std::move(place);
          break;
        }
        if (behind >= end) break;
        at = behind;
      }
  return best;
}

Place PoolHeap::describe(const GapIndex& zone, Interval bytes, const LaneClock& lane) const {
  Place place{bytes, zone.clean_granules(bytes), 0, {}, Need::nothing};
  place.unmapped = place.granules.length() - spare_.count_in(place.granules);
  place.waits = pending_.in(bytes);
  std::erase_if(place.waits, [&](const Tag& tag) { return tag.clock == &lane; });
  if (!place.waits.empty()) place.need = Need::waits;
  if (place.unmapped > 0) place.need = Need::memory;
  return place;
}

void PoolHeap::take(const Place& place) {
  zone_of(place.bytes.begin).take(place.bytes);
  spare_.remove(place.granules);
  pending_.cut(place.bytes);
}

void PoolHeap::give(Interval bytes, Tags tags) {
  const Interval fresh = zone_of(bytes.begin).add(bytes);
  spare_.add(fresh);
  pending_.add(bytes, std::move(tags));
}

std::vector<Interval> PoolHeap::recyclable(const Pieces& pieces, std::uint64_t most, Interval kept) const {
  return whole_pieces(spare_.runs(), pieces, most, [&](Interval piece) {
    const bool is_kept = piece.begin < kept.end && kept.begin < piece.end;
    return !is_kept && !pending_.any_in({piece.begin * granule_, piece.end * granule_});
  });
}

Bytes PoolHeap::largest_mapped_gap() const {
  Bytes largest = 0;
  for (const GapIndex& zone : zones_)
    for (const auto& [begin, end] : zone.gaps()) {
      Bytes from = begin;
      const Interval clean = zone.clean_granules({begin, end});
      spare_.for_each_missing(clean, [&](Interval hole) {
        largest = std::max(largest, hole.begin * granule_ - std::min(from, hole.begin * granule_));
        from = hole.end * granule_;
      });
      largest = std::max(largest, end - std::min(from, end));
    }
  return largest;
}

std::vector<Interval> PoolHeap::mapped() const {
  std::vector<Interval> found;
  for (const Interval zone : {Interval{space_.begin, border_}, Interval{border_, space_.end}}) {
    Bytes from = zone.begin;
    const GapIndex& index = zones_[zone.begin < border_ ? 0 : 1];
    const auto cut_at = [&](Interval hole) {
      if (from < hole.begin * granule_) found.push_back({from, hole.begin * granule_});
      from = hole.end * granule_;
    };
    for (const auto& [begin, end] : index.gaps()) {
      const Interval clean = index.clean_granules({begin, end});
      if (!clean.empty()) spare_.for_each_missing(clean, cut_at);
    }
    if (from < zone.end) found.push_back({from, zone.end});
  }
  return found;
}

Bytes PoolHeap::gap_end(Bytes position) const {
  const auto& gaps = zones_[position < border_ ? 0 : 1].gaps();
  const auto behind = gaps.upper_bound(position);
  return behind == gaps.begin() ? position : std::max(position, std::prev(behind)->second);
}

}  // namespace stowage::caching
