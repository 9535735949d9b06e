#include "allocator/plan_region.h"

#include <utility>

namespace stowage::caching {

std::uint32_t& PlanRegion::touches(std::uint64_t granule) {
  const std::uint64_t index = granule - space_.begin / granule_;
  if (index >= touches_.size()) touches_.resize(index + 1, 0);
  return touches_[index];
}

bool PlanRegion::is_touched(std::uint64_t granule) const {
  const std::uint64_t index = granule - space_.begin / granule_;
  return index < touches_.size() && touches_[index] > 0;
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

std::vector<Interval> PlanRegion::recyclable(std::uint64_t most, Interval kept) const {
  const Interval apart = kept.empty() ? Interval{} : granules_of(kept);
  std::vector<Interval> found;
  for (auto run = mapped_.runs().rbegin(); run != mapped_.runs().rend() && most > 0; ++run)
    for (std::uint64_t granule = run->second; granule-- > run->first && most > 0;) {
      const bool is_kept = granule >= apart.begin && granule < apart.end;
      if (is_kept || is_touched(granule)) continue;
      if (pending_.any_in({granule * granule_, (granule + 1) * granule_})) continue;
      if (!found.empty() && found.back().begin == granule + 1)
        found.back().begin = granule;
      else
        found.push_back({granule, granule + 1});
      --most;
    }
  return found;
}

}  // namespace stowage::caching
