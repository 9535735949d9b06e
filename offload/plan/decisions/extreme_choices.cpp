#include "offload/plan/decisions/extreme_choices.h"

#include <algorithm>

#include "offload/plan/schedule/candidate.h"
#include "offload/plan/schedule/live_bytes.h"

namespace stowage {
namespace {

// Returns the positions of the serial sketch with more than `most` live bytes.
std::vector<Position> too_large(const Problem& problem, const Draft& draft, Bytes most) {
  LiveBytes live(static_cast<Position>(draft.sequence.size()));
  for (const DraftLifetime& lifetime : draft.lifetimes)
    live.add(lifetime.first, lifetime.last, problem.layout.buckets[lifetime.bucket].bytes);
  std::vector<Position> positions;
  for (Position p = 0; p < static_cast<Position>(draft.sequence.size()); ++p)
    if (live.at(p) > most) positions.push_back(p);
  return positions;
}

// Changes choices until no position of the serial sketch has more than `most` live bytes, or gives up:
// 1. Items that a replayed op makes at such a position are offloaded instead.
// 2. If there are none, values that lie idle there between two uses are moved: an item that is rebuilt long
//    before its use is offloaded, and a spilled value is brought in again for each op that reads it.
// 3. If that is not enough, all rebuildable items of the units at such positions are offloaded.
class ReplayTrimmer {
 public:
  ReplayTrimmer(const Problem& problem, Choices choices, Bytes most)
      : problem_(problem), choices_(std::move(choices)), most_(most) {
    item_of_.assign(problem.layout.buckets.size(), no_id);
    for (std::size_t i = 0; i < problem.items.size(); ++i)
      for (BucketId bucket : problem.items[i].buckets) item_of_[bucket] = i;
  }

  Choices run() {
    for (int round = 0; round < most_rounds && look(); ++round)
      if (!stop_replays()) move_idle();
    if (look()) give_up_units();
    return std::move(choices_);
  }

 private:
  static constexpr int most_rounds = 4;

  bool look() {
    draft_ = Sketcher(problem_, choices_).serial().draft;
    positions_ = too_large(problem_, draft_, most_);
    return !positions_.empty();
  }
  const SequenceStep& at(Position p) const { return draft_.sequence[static_cast<std::size_t>(p)]; }

  bool offload(const ActivationItem& item) {
    if (!item.rebuildable || choice_of(item, choices_) != ActivationChoice::recompute) return false;
    choose(item, ActivationChoice::offload, choices_);
    return true;
  }
  bool stop_replays() {
    std::vector<std::uint8_t> replayed(problem_.graph->ops.size(), 0);
    for (Position p : positions_) replayed[at(p).op] |= at(p).recompute;
    bool any = false;
    for (const ActivationItem& item : problem_.items)
      if (replayed[item.writer]) any |= offload(item);
    return any;
  }
  void move_idle() {
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) {
      const DraftLifetime& lifetime = draft_.lifetimes[id];
      if (item_of_[lifetime.bucket] == no_id || !is_idle(id, lifetime)) continue;
      const ActivationItem& item = problem_.items[item_of_[lifetime.bucket]];
      if (item.rebuildable)
        offload(item);
      else if (choice_of(item, choices_) == ActivationChoice::spill)
        choose(item, ActivationChoice::reload, choices_);
    }
  }
  bool is_idle(LifetimeId id, const DraftLifetime& lifetime) const {
    const auto from = std::upper_bound(positions_.begin(), positions_.end(), lifetime.first_use);
    const auto to = std::lower_bound(from, positions_.end(), lifetime.last_use);
    return std::any_of(from, to, [&](Position p) {
      const std::span<const LifetimeId> uses = draft_.uses.at(p);
      return std::find(uses.begin(), uses.end(), id) == uses.end();
    });
  }
  void give_up_units() {
    std::vector<std::uint8_t> large(problem_.analysis.units.size() + 1, 0);
    for (Position p : positions_)
      large[std::min<std::size_t>(problem_.graph->op(at(p).op).unit, problem_.analysis.units.size())] = 1;
    for (const ActivationItem& item : problem_.items)
      if (large[item.unit]) offload(item);
  }

  const Problem& problem_;
  Choices choices_;
  Bytes most_;
  std::vector<std::size_t> item_of_;  // item of each bucket
  Draft draft_;                       // the serial sketch
  std::vector<Position> positions_;   // positions with more than most_ live bytes
};

}  // namespace

LoadChoice highest_load(const Problem& problem, BucketId bucket) {
  const BucketRole role = problem.layout.roles[bucket];
  if (role == BucketRole::parameter) return LoadChoice::resident;
  return role == BucketRole::input ? LoadChoice::held : LoadChoice::each_op;
}

Choices lowest_choices(const Problem& problem) {
  Choices choices;
  choices.activations.assign(problem.layout.buckets.size(), ActivationChoice::recompute);
  for (const ActivationItem& item : problem.items)
    if (!item.rebuildable) choose(item, ActivationChoice::spill, choices);
  choices.loads.assign(problem.layout.buckets.size(), LoadChoice::each_op);
  return choices;
}

std::vector<Choices> minimum_candidates(const Problem& problem) {
  auto all = [&](ActivationChoice rebuildable, ActivationChoice others) {
    Choices choices = lowest_choices(problem);
    for (const ActivationItem& item : problem.items)
      choose(item, item.rebuildable ? rebuildable : others, choices);
    return choices;
  };
  using enum ActivationChoice;
  std::vector<Choices> candidates{lowest_choices(problem), all(recompute, offload), all(recompute, keep),
                                  all(spill, spill),       all(offload, offload),   all(keep, keep)};
  Bytes least = unlimited;
  for (const Choices& choices : candidates)
    least = std::min(least, Sketcher(problem, choices).serial_bytes());
  candidates.push_back(ReplayTrimmer(problem, candidates.front(), least).run());
  std::reverse(candidates.begin(), candidates.end());
  return candidates;
}

Choices resident_choices(const Problem& problem) {
  Choices choices;
  choices.activations.assign(problem.layout.buckets.size(), ActivationChoice::recompute);
  for (const ActivationItem& item : problem.items) choose(item, ActivationChoice::keep, choices);
  choices.loads.assign(problem.layout.buckets.size(), LoadChoice::held);
  for (BucketId id : problem.layout.parameters) choices.loads[id] = LoadChoice::resident;
  return choices;
}

}  // namespace stowage
