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
      zones_{GapIndex(granule, Fit::tightest), GapIndex(granule, Fit::tightest), GapIndex(granule)} {
  const Bytes quarter = space.length() / 4 / granule * granule;
  borders_ = {space.begin, space.begin + quarter, space.begin + 2 * quarter, space.end};
  for (std::size_t zone = tiny; zone < zones; ++zone)
    if (borders_[zone] < borders_[zone + 1]) zones_[zone].add({borders_[zone], borders_[zone + 1]});
}

std::optional<Place> PoolHeap::find(Bytes bytes, const LaneClock& lane, Need most, std::size_t breadth,
                                    bool may_wait) const {
  static constexpr std::array<std::array<std::size_t, zones>, zones> orders = {
      {{tiny, small, large}, {small, large, tiny}, {large, small, tiny}}};
  std::optional<Place> best;
  const std::size_t own = zone_for(bytes);
  for (const std::size_t index : orders[own]) {
    if (index != own && (index == tiny || own == tiny) && breadth != all) continue;
    const GapIndex& zone = zones_[index];
    // A foreign zone serves the request from mapped granules only; new ones are mapped there only
    // as a last resort.
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
  zones_[zone_at(place.bytes.begin)].take(place.bytes);
  spare_.remove(place.granules);
  pending_.cut(place.bytes);
}

void PoolHeap::give(Interval bytes, Tags tags) {
  const Interval fresh = zones_[zone_at(bytes.begin)].add(bytes);
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
  for (std::size_t zone = tiny; zone < zones; ++zone) {
    Bytes from = borders_[zone];
    const GapIndex& index = zones_[zone];
    const auto cut_at = [&](Interval hole) {
      if (from < hole.begin * granule_) found.push_back({from, hole.begin * granule_});
      from = hole.end * granule_;
    };
    for (const auto& [begin, end] : index.gaps()) {
      const Interval clean = index.clean_granules({begin, end});
      if (!clean.empty()) spare_.for_each_missing(clean, cut_at);
    }
    if (from < borders_[zone + 1]) found.push_back({from, borders_[zone + 1]});
  }
  return found;
}

Bytes PoolHeap::gap_end(Bytes position) const {
  const auto& gaps = zones_[zone_at(position)].gaps();
  const auto behind = gaps.upper_bound(position);
  return behind == gaps.begin() ? position : std::max(position, std::prev(behind)->second);
}

}  // namespace stowage::caching
