#include "offload/plan/schedule/places.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "offload/plan/schedule/candidate.h"
#include "offload/plan/schedule/claims.h"
#include "offload/plan/schedule/transfer_places.h"
#include "src/placement/blocks.h"
#include "src/placement/methods.h"
#include "stowage/placement.h"

namespace stowage {
namespace {

// Drafts with more lifetimes are not placed by the branch-and-bound search.
constexpr std::size_t most_searched = 500;
constexpr std::uint64_t most_search_nodes = 50'000;  // limit of nodes in the branch-and-bound search
constexpr Bytes small_part = 1024;  // the beam places items of at most 1/small_part of the live bytes last
// Coherences of the beam search (src/placement/methods.h), in the order in which they are tried.
constexpr double coherences[] = {0.35, 0.8, 0.55};
// Heights tried for the lowest arena begin at the live bytes and rise by 1/low_height_unit of them.
constexpr Bytes low_height_unit = 200;
constexpr std::size_t wide_beam = 64;
const Bytes alignment = Plan{}.alignment;

// Finds offsets for a draft's lifetimes. Residents lie at the bottom of the arena. The beam search places
// large lifetimes above them, and then small lifetimes in the room between.
class Arena {
 public:
  Arena(const Problem& problem, const Draft& draft) : problem_(problem), draft_(draft) {
    for (const DraftLifetime& lifetime : draft_.lifetimes)
      items_.push_back({lifetime.first, lifetime.last, problem.layout.buckets[lifetime.bucket].bytes});
    live_ = peak_live_bytes(items_);
    part_items();
  }
  Bytes live() const { return live_; }
  bool is_large() const { return others_.size() > most_searched; }

  std::vector<Bytes> greedy(KnownPlaces& known) const {
    problem_.throw_if_cancelled();
    return with_residents(is_large() ? place(other_items_, alignment).offsets : known.low(other_items_));
  }

  std::optional<std::vector<Bytes>> search_under(Bytes height, KnownPlaces& known) const {
    if (others_.size() > most_searched || height <= resident_bytes_) return std::nullopt;
    problem_.throw_if_cancelled();
    const std::optional<std::vector<Bytes>>& found = known.within(other_items_, height - resident_bytes_);
    return found ? std::optional(with_residents(*found)) : std::nullopt;
  }

  std::optional<std::vector<Bytes>> beam_under(Bytes height, double coherence, std::size_t width) const {
    problem_.throw_if_cancelled();
    const Bytes taken = resident_bytes_ + (small_items_.empty() ? 0 : peak_live_bytes(small_items_));
    const auto placed = placement::place_in_time(large_items_, {.height = height - std::min(height, taken),
                                                                .alignment = alignment,
                                                                .width = width,
                                                                .coherence = coherence});
    if (!placed) return std::nullopt;
    std::vector<Bytes> offsets = resident_offsets();
    for (std::size_t i = 0; i < large_.size(); ++i) offsets[large_[i]] = resident_bytes_ + (*placed)[i];
    place_between(offsets);
    return offsets;
  }

  Bytes peak_of(const std::vector<Bytes>& offsets) const {
    Bytes peak = 0;
    for (std::size_t i = 0; i < offsets.size(); ++i) peak = std::max(peak, offsets[i] + items_[i].bytes);
    return peak;
  }

 private:
  void part_items() {
    for (LifetimeId id = 0; id < items_.size(); ++id) {
      if (draft_.lifetimes[id].resident) {
        residents_.push_back(id);
        resident_bytes_ += align_up(items_[id].bytes, alignment);
        continue;
      }
      others_.push_back(id);
      other_items_.push_back(items_[id]);
      const bool small = items_[id].bytes <= live_ / small_part;
      (small ? small_ : large_).push_back(id);
      (small ? small_items_ : large_items_).push_back(items_[id]);
    }
  }
  std::vector<Bytes> resident_offsets() const {
    std::vector<Bytes> offsets(draft_.lifetimes.size());
    Bytes bottom = 0;
    for (LifetimeId id : residents_) bottom = (offsets[id] = bottom) + align_up(items_[id].bytes, alignment);
    return offsets;
  }
  // Returns the offsets of all lifetimes. `of_others`: the offsets of all but the residents,
  // above the residents.
  std::vector<Bytes> with_residents(const std::vector<Bytes>& of_others) const {
    std::vector<Bytes> offsets = resident_offsets();
    for (std::size_t i = 0; i < others_.size(); ++i) offsets[others_[i]] = resident_bytes_ + of_others[i];
    return offsets;
  }
  void place_between(std::vector<Bytes>& offsets) const {
    std::vector<placement::Block> blocks;
    for (const PlacementItem& item : items_)
      blocks.push_back({item.first, item.last, item.bytes, align_up(item.bytes, alignment), 0});
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
  std::vector<LifetimeId> residents_, others_, large_, small_;
  Bytes resident_bytes_ = 0;
  std::vector<PlacementItem> items_, other_items_, large_items_, small_items_;
};

}  // namespace

bool KnownPlaces::IsBefore::operator()(const std::vector<PlacementItem>& a,
                                       const std::vector<PlacementItem>& b) const {
  return std::lexicographical_compare(
      a.begin(), a.end(), b.begin(), b.end(), [](const PlacementItem& x, const PlacementItem& y) {
        return std::tie(x.first, x.last, x.bytes) < std::tie(y.first, y.last, y.bytes);
      });
}

const std::vector<Bytes>& KnownPlaces::low(const std::vector<PlacementItem>& items) {
  std::optional<std::vector<Bytes>>& low = places_[items].low;
  if (!low) low = place(items, alignment).offsets;
  return *low;
}

const std::optional<std::vector<Bytes>>& KnownPlaces::within(const std::vector<PlacementItem>& items,
                                                             Bytes capacity) {
  std::map<Bytes, std::optional<std::vector<Bytes>>>& known = places_[items].within;
  if (const auto at = known.find(capacity); at != known.end()) return at->second;
  PlacementResult found = solve_placement(
      items,
      {.alignment = alignment, .capacity = capacity, .node_limit = most_search_nodes, .keep_going = {}});
  std::optional<std::vector<Bytes>> offsets;
  if (found.peak <= capacity) offsets = std::move(found.offsets);
  return known[capacity] = std::move(offsets);
}

std::optional<Plan> placed_within(const Problem& problem, const Draft& draft, Bytes capacity,
                                  const PlannerSettings& settings) {
  KnownPlaces known;
  return placed_within(problem, draft, capacity, settings, known);
}

std::optional<Plan> placed_within(const Problem& problem, const Draft& draft, Bytes capacity,
                                  const PlannerSettings& settings, KnownPlaces& known) {
  const Arena arena(problem, draft);
  if (arena.live() > capacity) return std::nullopt;
  std::optional<std::vector<Bytes>> offsets = arena.greedy(known);
  if (arena.peak_of(*offsets) > capacity && settings.search) offsets = arena.search_under(capacity, known);
  if (!offsets || arena.peak_of(*offsets) > capacity) return std::nullopt;
  return complete_at(
      problem, draft,
      places_for_transfers(problem, draft, std::move(*offsets), capacity, settings.place_leads));
}

Plan placed_low(const Problem& problem, const Draft& draft) {
  const Arena arena(problem, draft);
  KnownPlaces known;
  std::vector<Bytes> lowest = arena.greedy(known);
  const Bytes live = arena.live(), unit = live / low_height_unit;
  std::optional<std::vector<Bytes>> found;
  if (arena.peak_of(lowest) > live + 2 * unit) found = arena.search_under(live + 2 * unit, known);
  for (Bytes units = 0; !found && arena.is_large() && unit > 0 && live + unit * units < arena.peak_of(lowest);
       ++units)
    for (const double coherence : coherences)
      if (!found) found = arena.beam_under(live + unit * units, coherence, wide_beam);
  if (found && arena.peak_of(*found) < arena.peak_of(lowest)) lowest = std::move(*found);
  return complete_at(problem, draft, lowest);
}

}  // namespace stowage
