#include "allocator/plan_region.h"

#include <algorithm>
#include <utility>

namespace stowage::caching {

std::uint32_t& PlanRegion::touches(std::uint64_t granule) {
  const std::uint64_t index = granule - space_.begin / granule_;
  if (index >= touches_.size()) touches_.resize(index + 1, 0);
  return touches_[index];
}

bool PlanRegion::is_touched(Interval granules) const {
  const std::uint64_t first = space_.begin / granule_;
  const std::uint64_t end = std::min<std::uint64_t>(granules.end - first, touches_.size());
  for (std::uint64_t index = granules.begin - first; index < end; ++index)
    if (touches_[index] > 0) return true;
  return false;
}

std::vector<Interval> PlanRegion::missing(Interval bytes) const {
  std::vector<Interval> runs;
  mapped_.for_each_missing(granules_of(bytes), [&](Interval run) { runs.push_back(run); });
  return runs;
}

Tags PlanRegion::waits(Interval bytes, const LaneClock& lane) const {
  Tags tags = pending_.in(bytes);
  std::erase_if(tags, [&](const Tag& tag) { return tag.clock == &lane; });
  return tags;
}

void PlanRegion::take(Interval bytes) {
  const Interval granules = granules_of(bytes);
  for (std::uint64_t granule = granules.begin; granule < granules.end; ++granule) ++touches(granule);
  pending_.cut(bytes);
  held_ += bytes.length();
}

void PlanRegion::give(Interval bytes, Tags tags) {
  const Interval granules = granules_of(bytes);
  for (std::uint64_t granule = granules.begin; granule < granules.end; ++granule) --touches(granule);
  pending_.add(bytes, std::move(tags));
  held_ -= bytes.length();
}

std::vector<Interval> PlanRegion::recyclable(const Pieces& pieces, std::uint64_t most, Interval kept) const {
  const Interval apart = kept.empty() ? Interval{} : granules_of(kept);
  return whole_pieces(mapped_.runs(), pieces, most, [&](Interval piece) {
    const bool is_kept = piece.begin < apart.end && apart.begin < piece.end;
    return !is_kept && !is_touched(piece) && !pending_.any_in({piece.begin * granule_, piece.end * granule_});
  });
}

}  // namespace stowage::caching
