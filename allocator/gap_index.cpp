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

void GapIndex::insert(Interval gap) {
  gaps_.emplace(gap.begin, gap.end);
  const std::uint64_t count = clean_count(gap);
  shapes_.insert({count, gap.length(), gap.begin});
  if (count == 0) return;
  const Interval granules = clean(gap);
  fragments_.insert({granules.begin * granule_ - gap.begin, gap.begin, false});
  if (gap.end > granules.end * granule_)
    fragments_.insert({gap.end - granules.end * granule_, gap.begin, true});
}

void GapIndex::erase(std::map<Bytes, Bytes>::iterator found) {
  const Interval gap{found->first, found->second};
  const std::uint64_t count = clean_count(gap);
  shapes_.erase({count, gap.length(), gap.begin});
  if (count > 0) {
    const Interval granules = clean(gap);
    fragments_.erase({granules.begin * granule_ - gap.begin, gap.begin, false});
    fragments_.erase({gap.end - granules.end * granule_, gap.begin, true});
  }
  gaps_.erase(found);
}

}  // namespace stowage::caching
