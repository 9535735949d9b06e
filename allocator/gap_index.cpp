#include "allocator/gap_index.h"

#include <iterator>

namespace stowage::caching {

Interval GapIndex::add(Interval added) {
  Interval fresh = clean(added);
  const auto after = gaps_.lower_bound(added.begin);
  if (after != gaps_.end() && after->first == added.end) {
    const Interval right{after->first, after->second};
    fresh.end = clean_count(right) > 0 ? clean(right).begin : right.end / granule_;
    added.end = right.end;
    erase(after);
  }
  const auto next = gaps_.lower_bound(added.begin);
  if (next != gaps_.begin() && std::prev(next)->second == added.begin) {
    const Interval left{std::prev(next)->first, std::prev(next)->second};
    fresh.begin = clean_count(left) > 0 ? clean(left).end : (left.begin + granule_ - 1) / granule_;
    added.begin = left.begin;
    erase(std::prev(next));
  }
  insert(added);
  return fresh;
}

void GapIndex::take(Interval taken) {
  const auto found = std::prev(gaps_.upper_bound(taken.begin));
  const Interval gap{found->first, found->second};
  erase(found);
  if (gap.begin < taken.begin) insert({gap.begin, taken.begin});
  if (taken.end < gap.end) insert({taken.end, gap.end});
}

Interval GapIndex::clean_granules(Interval place) const {
  const auto found = std::prev(gaps_.upper_bound(place.begin));
  const Interval granules = clean({found->first, found->second});
  const Interval taken{std::max(granules.begin, place.begin / granule_),
                       std::min(granules.end, (place.end + granule_ - 1) / granule_)};
  return taken.empty() ? Interval{} : taken;
}

// Returns how many clean granules the place would take, and how many granules it touches.
std::pair<std::uint64_t, std::uint64_t> GapIndex::cost_in(Interval gap, Interval place) const {
  const Interval granules = clean(gap);
  const Interval touched{place.begin / granule_, (place.end + granule_ - 1) / granule_};
  const Interval taken{std::max(granules.begin, touched.begin), std::min(granules.end, touched.end)};
  return {taken.empty() ? 0 : taken.length(), touched.length()};
}

Interval GapIndex::within(Interval gap, Bytes bytes) const {
  const Interval granules = clean(gap);
  Interval best{gap.begin, gap.begin + bytes};
  if (fit_ == Fit::tightest) return best;
  auto best_cost = cost_in(gap, best);
  const auto consider = [&](Bytes begin) {
    if (begin < gap.begin || begin > gap.end - bytes) return;
    const Interval place{begin, begin + bytes};
    const auto cost = cost_in(gap, place);
    if (cost < best_cost) best_cost = cost, best = place;
  };
  consider(granules.begin * granule_);
  consider(granules.end * granule_ - std::min(bytes, granules.end * granule_));
  consider(gap.end - bytes);
  return best;
}

void GapIndex::insert(Interval gap) {
  gaps_.emplace(gap.begin, gap.end);
  shapes_.insert(shape_of(gap));
  if (fit_ == Fit::tightest || clean_count(gap) == 0) return;
  const Interval granules = clean(gap);
  fragments_.insert({granules.begin * granule_ - gap.begin, gap.begin, false});
  if (gap.end > granules.end * granule_)
    fragments_.insert({gap.end - granules.end * granule_, gap.begin, true});
}

void GapIndex::erase(std::map<Bytes, Bytes>::iterator found) {
  const Interval gap{found->first, found->second};
  shapes_.erase(shape_of(gap));
  if (fit_ == Fit::cheapest && clean_count(gap) > 0) {
    const Interval granules = clean(gap);
    fragments_.erase({granules.begin * granule_ - gap.begin, gap.begin, false});
    fragments_.erase({gap.end - granules.end * granule_, gap.begin, true});
  }
  gaps_.erase(found);
}

}  // namespace stowage::caching
