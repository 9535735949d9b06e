#include "offload/plan/tighten.h"

#include <algorithm>
#include <utility>

#include "offload/plan/early.h"
#include "src/placement/blocks.h"
#include "src/placement/time_beam.h"
#include "stowage/placement.h"

namespace stowage {
namespace {

constexpr std::size_t most_searched = 3'500;  // lifetimes, by the search that proves bounds
constexpr Bytes small_part = 1024;  // items of less, of the live bytes, are placed last, between the others
constexpr double hair = 1e-9;       // of a step: the simulation's rounding
const Bytes alignment = Plan{}.alignment;

// Heights above the live bytes, in hundredths of them, where a plan may become tight by what begins early.
constexpr Bytes heights[] = {2, 3, 4, 6, 8, 10, 15, 20, 30}, height_unit = 100;
constexpr Bytes low_height_unit = 200;  // where the lowest arena counts

// Of the beam: other ones at such a height only where the first found places.
constexpr double coherences[] = {0.35, 0.8, 0.55};

constexpr std::size_t costly_live = 32;

class Tightener {
 public:
  Tightener(const Problem& problem, const Draft& draft)
      : problem_(problem), draft_(draft), claims_(draft, problem.layout) {
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id)
      items_.push_back({draft_.lifetimes[id].first, draft_.lifetimes[id].last, bytes_of(id)});
    live_ = peak_live_bytes(items_);
    part_items();
  }
  Bytes live() const { return live_; }

  // The same by the search that proves bounds, where its work is small.
  std::optional<std::vector<Bytes>> search_under(Bytes height) const {
    if (others_.size() > most_searched || height <= resident_bytes_) return std::nullopt;
    std::vector<PlacementItem> items;
    for (LifetimeId id : others_) items.push_back(items_[id]);
    const PlacementResult found = solve_placement(items, {.alignment = alignment,
                                                          .capacity = height - resident_bytes_,
                                                          .node_limit = 50'000,
                                                          .keep_going = {}});
    if (found.peak > height - resident_bytes_) return std::nullopt;
    std::vector<Bytes> offsets = resident_offsets();
    for (std::size_t i = 0; i < others_.size(); ++i) offsets[others_[i]] = resident_bytes_ + found.offsets[i];
    return offsets;
  }

  // Offsets of all lifetimes: residents at the bottom, the large ones above them under this height.
  std::optional<std::vector<Bytes>> place_under(Bytes height, double coherence) const {
    const Bytes taken = resident_bytes_ + (rest_.empty() ? 0 : peak_live_bytes(rest_));
    const auto placed = placement::place_in_time(
        large_items_,
        {.height = height - std::min(height, taken), .alignment = alignment, .coherence = coherence});
    if (!placed) return std::nullopt;
    std::vector<Bytes> offsets = resident_offsets();
    for (std::size_t i = 0; i < large_.size(); ++i) offsets[large_[i]] = resident_bytes_ + (*placed)[i];
    place_between(offsets);
    return offsets;
  }

  // Whether so much is live at a time that a placement takes long.
  bool is_costly() const {
    std::size_t length = 0;
    for (const PlacementItem& item : large_items_) length += static_cast<std::size_t>(item.last - item.first);
    return length > costly_live * draft_.sequence.size();
  }
  // Whether enough could begin early for a plan that fills this height to be tight, if places did not matter.
  bool may_fill(Bytes height) const {
    const Bytes live = scheduled_peak_bytes(claims_.within(height), problem_.layout);
    return height - std::min(height, live) <= live / 100;
  }
  // The draft with prefetches that begin as early as their bytes are free.
  Draft claimed_early(const std::vector<Bytes>& offsets) const { return claims_.at(offsets); }

 private:
  Bytes bytes_of(LifetimeId id) const { return problem_.layout.buckets[draft_.lifetimes[id].bucket].bytes; }

  void part_items() {
    for (LifetimeId id = 0; id < items_.size(); ++id) {
      if (draft_.lifetimes[id].resident) {
        residents_.push_back(id);
        resident_bytes_ += align_up(items_[id].bytes, alignment);
        continue;
      }
      others_.push_back(id);
      const bool small = items_[id].bytes <= live_ / small_part;
      (small ? small_ : large_).push_back(id);
      (small ? rest_ : large_items_).push_back(items_[id]);
    }
  }
  std::vector<Bytes> resident_offsets() const {
    std::vector<Bytes> offsets(draft_.lifetimes.size());
    Bytes bottom = 0;
    for (LifetimeId id : residents_) bottom = (offsets[id] = bottom) + align_up(bytes_of(id), alignment);
    return offsets;
  }
  placement::Block block_of(LifetimeId id) const {
    const DraftLifetime& lifetime = draft_.lifetimes[id];
    return {lifetime.first, lifetime.last, bytes_of(id), align_up(bytes_of(id), alignment), 0};
  }
  void place_between(std::vector<Bytes>& offsets) const {
    std::vector<placement::Block> blocks;
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) blocks.push_back(block_of(id));
    placement::PlacedBlocks placed(blocks);
    for (LifetimeId id : residents_) placed.add(blocks[id], offsets[id]);
    for (LifetimeId id : large_) placed.add(blocks[id], offsets[id]);
    std::vector<LifetimeId> order = small_;
    std::stable_sort(order.begin(), order.end(),
                     [&](LifetimeId a, LifetimeId b) { return blocks[a].area() > blocks[b].area(); });
    for (LifetimeId id : order) {
      offsets[id] = placed.find_gap(blocks[id], placement::Fit::first);
      placed.add(blocks[id], offsets[id]);
    }
  }

  const Problem& problem_;
  const Draft& draft_;
  Bytes live_ = 0;
  EarlyClaims claims_;
  std::vector<LifetimeId> residents_, others_, large_, small_;
  Bytes resident_bytes_ = 0;
  std::vector<PlacementItem> items_, large_items_, rest_;
};

std::vector<Bytes> offsets_of(const Plan& plan) {
  std::vector<Bytes> offsets;
  for (const Lifetime& lifetime : plan.lifetimes) offsets.push_back(lifetime.offset);
  return offsets;
}

// What is tried for one plan. The same for all budgets, in the same order: what one finds, or its first
// success, is that of each larger one.
class Attempts {
 public:
  Attempts(const Problem& problem, const Draft& draft, const Plan& plan)
      : problem_(problem),
        plan_(plan),
        tightener_(problem, draft),
        lowest_(tightener_.live() + tightener_.live() / height_unit) {}

  // Under a height that makes it tight whatever begins early: the fastest.
  std::optional<Plan> brief(Bytes most, const WantedTime& wanted) const {
    if (most < lowest_) return std::nullopt;  // all that fits is tight
    std::optional<Plan> fastest;
    for (const double coherence : coherences) {
      const auto offsets = tightener_.place_under(lowest_, coherence);
      std::optional<Plan> found = offsets ? at(*offsets, {1, tightening_change}) : std::nullopt;
      if (!found || found->predicted_step_seconds < wanted.least_seconds) continue;
      if (!fastest || found->predicted_step_seconds < fastest->predicted_step_seconds)
        fastest = std::move(found);
      const bool is_enough = is_tight(plan_) || fastest->predicted_step_seconds <= wanted.enough_seconds;
      if (is_enough && tightener_.is_costly()) break;
    }
    return fastest;
  }
  // Under that height by a search, then under others, which need not make it tight, between them where it
  // stands.
  std::optional<Plan> thorough(Bytes most) const {
    if (most < lowest_) return std::nullopt;
    if (const auto offsets = tightener_.search_under(lowest_))
      if (auto found = at(*offsets, {tightening_change, tightening_change})) return found;
    const Bytes arena = plan_.device_peak_bytes;
    if (auto found = between(lowest_, std::min(arena, most), {tightening_change, tightening_change}))
      return found;
    if (arena > most) return std::nullopt;
    if (auto found = in_place(most)) return found;
    return between(arena, most, {tightening_change, hair});
  }

  // Where it stands.
  std::optional<Plan> in_place(Bytes most) const {
    if (plan_.device_peak_bytes > most) return std::nullopt;
    return at(offsets_of(plan_), {tightening_change, hair});
  }

 private:
  // In parts of the plan's time.
  struct Change {
    double faster = 0, slower = 0;
  };

  // The plan with these offsets if it is tight and takes about the same time.
  std::optional<Plan> at(const std::vector<Bytes>& offsets, Change most) const {
    const Draft early = tightener_.claimed_early(offsets);
    if (!is_tight(place_only(problem_, early, offsets))) return std::nullopt;
    Plan found = complete_at(problem_, early, offsets);
    const double change = found.predicted_step_seconds / plan_.predicted_step_seconds - 1;
    if (change < -most.faster || change > most.slower) return std::nullopt;
    return found;
  }
  std::optional<Plan> under(Bytes height, Change most) const {
    for (const double coherence : coherences) {
      const auto offsets = tightener_.place_under(height, coherence);
      if (!offsets) return std::nullopt;
      if (auto found = at(*offsets, most)) return found;
    }
    return std::nullopt;
  }
  std::optional<Plan> between(Bytes above, Bytes highest, Change most) const {
    for (const Bytes units : heights) {
      const Bytes height = tightener_.live() + tightener_.live() / height_unit * units;
      if (height <= above || height > highest || !tightener_.may_fill(height)) continue;
      if (auto found = under(height, most)) return found;
    }
    return std::nullopt;
  }

  const Problem& problem_;
  const Plan& plan_;
  Tightener tightener_;
  Bytes lowest_;
};

}  // namespace

std::optional<Plan> tightened(const Problem& problem, const Draft& draft, const Plan& plan, Bytes most,
                              const WantedTime& wanted) {
  return Attempts(problem, draft, plan).brief(most, wanted);
}

std::optional<Plan> tightened_thoroughly(const Problem& problem, const Draft& draft, const Plan& plan,
                                         Bytes most) {
  return Attempts(problem, draft, plan).thorough(most);
}

std::optional<Plan> tightened_in_place(const Problem& problem, const Draft& draft, const Plan& plan,
                                       Bytes most) {
  return Attempts(problem, draft, plan).in_place(most);
}

std::optional<Plan> placed_tight(const Problem& problem, const Draft& draft) {
  const Tightener tightener(problem, draft);
  const auto offsets =
      tightener.place_under(tightener.live() + tightener.live() / height_unit, coherences[0]);
  if (!offsets) return std::nullopt;
  return complete_at(problem, tightener.claimed_early(*offsets), *offsets);
}

Plan complete_low(const Problem& problem, const Draft& draft) {
  Plan plan = complete(problem, draft);
  if (is_small(*problem.graph) || is_tight(plan)) return plan;
  const Tightener tightener(problem, draft);
  const Bytes live = tightener.live();
  auto offsets = tightener.search_under(live + live / height_unit);
  for (Bytes units = 0; !offsets && live + live / low_height_unit * units < plan.device_peak_bytes; ++units)
    for (const double coherence : coherences)
      if (!offsets) offsets = tightener.place_under(live + live / low_height_unit * units, coherence);
  if (!offsets) return plan;
  Plan low = complete_at(problem, tightener.claimed_early(*offsets), *offsets);
  return low.device_peak_bytes < plan.device_peak_bytes ? low : plan;
}

}  // namespace stowage
