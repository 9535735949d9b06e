#include "allocator/replay/region.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace stowage::caching::replay {

std::uint32_t& Region::touches(std::uint64_t granule) {
  const std::uint64_t index = granule - space_.begin / granule_;
  if (index >= touches_.size()) touches_.resize(index + 1, 0);
  return touches_[index];
}

bool Region::is_touched(Interval granules) const {
  const std::uint64_t first = space_.begin / granule_;
  const std::uint64_t end = std::min<std::uint64_t>(granules.end - first, touches_.size());
  for (std::uint64_t index = granules.begin - first; index < end; ++index)
    if (touches_[index] > 0) return true;
  return false;
}

std::vector<Interval> Region::missing_runs(Interval place) const {
  std::vector<Interval> runs;
  mapped_.for_each_missing(granules_of(place), [&](Interval run) { runs.push_back(run); });
  return runs;
}

Tags Region::waits(Interval place, const LaneClock& lane) const {
  Tags tags = pending_.in(place);
  std::erase_if(tags, [&](const Tag& tag) { return tag.clock == &lane; });
  return tags;
}

bool Region::awaits_granules(Interval place, Bytes needed) const {
  const std::uint64_t count = missing(place);
  const std::uint64_t wanted = std::min(count, beyond_need(count, needed));
  const std::uint64_t movable = length_of(recyclable(wanted, place));
  return movable < wanted && length_of(recyclable(wanted, place, true)) > movable;
}

bool Region::map_granules(Interval place, Bytes needed) {
  const std::vector<Interval> runs = missing_runs(place);
  if (runs.empty()) return true;
  const std::uint64_t count = length_of(runs);
  const std::uint64_t moved = lend(std::min(count, beyond_need(count, needed)), place);
  memory_.unmap_spare(pool_, count - std::min(count, moved));
  if (memory_.room() < count) lend(count - memory_.room(), place);
  std::exception_ptr failure;  // ignored here: the caching path will meet the same failure
  while (failure == nullptr && memory_.room() >= count) {
    if (memory_.map(*this, pool_, runs, failure)) return true;
    if (memory_.unmap_spare(pool_, count) == 0) return false;
  }
  return false;
}

void Region::take(Interval place) {
  const Interval granules = granules_of(place);
  for (std::uint64_t granule = granules.begin; granule < granules.end; ++granule) ++touches(granule);
  pending_.cut(place);
  taken_ += place.length();
}

void Region::give(Interval place, Tags tags) {
  const Interval granules = granules_of(place);
  for (std::uint64_t granule = granules.begin; granule < granules.end; ++granule) --touches(granule);
  pending_.add(place, std::move(tags));
  taken_ -= place.length();
}

void Region::make_way(Bytes bytes, Bytes needed) {
  std::uint64_t wanted = missing(at(0, bytes));
  wanted -= std::min(wanted, beyond_need(wanted, needed));
  const std::uint64_t spare = pool_.heap.spare().count();
  if (spare > wanted) memory_.unmap_spare(pool_, spare - wanted);
}

// Returns the granules by which the mapped ones and `more` exceed those that the plan needs at one time.
std::uint64_t Region::beyond_need(std::uint64_t more, Bytes needed) const {
  const std::uint64_t mapped = mapped_.count() + more;
  return mapped - std::min(mapped, (needed + granule_ - 1) / granule_);
}

// Returns idle granules that no lane may be using, apart from those that `kept` touches, from the highest
// address down.
std::vector<Interval> Region::recyclable(std::uint64_t most, Interval kept, bool may_be_pending) const {
  const Interval apart = kept.empty() ? Interval{} : granules_of(kept);
  return whole_pieces(mapped_.runs(), memory_.pieces(), most, [&](Interval piece) {
    const bool is_kept = piece.begin < apart.end && apart.begin < piece.end;
    if (is_kept || is_touched(piece)) return false;
    return may_be_pending || !pending_.any_in({piece.begin * granule_, piece.end * granule_});
  });
}

std::uint64_t Region::lend(std::uint64_t most, Interval kept) {
  return memory_.unmap(*this, pool_, recyclable(most, kept));
}

}  // namespace stowage::caching::replay
