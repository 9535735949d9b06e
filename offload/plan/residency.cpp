#include "offload/plan/residency.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "offload/plan/live_bytes.h"

namespace stowage {
namespace {

// The greedy judges with this much memory for transfers, in parts of what the ops alone need.
constexpr double judging_share = 1.25;

Sketch judged(const Problem& problem, const Choices& choices) {
  const Sketcher sketcher(problem, choices);
  Sketch sketch =
      sketcher.within(static_cast<Bytes>(judging_share * static_cast<double>(sketcher.serial_bytes())));
  time_sketch(problem, sketch, 0);
  return sketch;
}

// A bucket's loads or an activation item, and the level that it would get.
struct Promotion {
  bool is_activation = false;
  std::uint32_t index = 0;  // bucket or item
  int level = 0;            // LoadChoice or ActivationChoice
};
struct Gain {
  double seconds_per_byte = 0;
  double link_bytes_per_byte = 0;
  Promotion promotion;
  std::size_t evaluated_at = 0;  // length of the path when computed
};
bool operator<(const Gain& a, const Gain& b) {
  auto key = [](const Gain& g) {
    return std::tuple(g.seconds_per_byte, g.link_bytes_per_byte, !g.promotion.is_activation,
                      ~g.promotion.index, -g.promotion.level);
  };
  return key(a) < key(b);
}

class Promoter {
 public:
  explicit Promoter(const Problem& problem) : problem_(problem), choices_(lowest_choices(problem)) {}

  std::vector<Choices> run() {
    path_.push_back(choices_);
    current_ = judged(problem_, choices_);
    for (std::uint32_t item = 0; item < problem_.items.size(); ++item) push_all(true, item);
    for (BucketId id = 0; id < problem_.layout.buckets.size(); ++id) push_all(false, id);
    while (!queue_.empty()) {
      Gain top = queue_.top();
      queue_.pop();
      if (top.promotion.level <= level_of(top.promotion)) continue;
      if (top.evaluated_at != path_.size())
        push(top.promotion);
      else
        take(top.promotion);
    }
    return std::move(path_);
  }

 private:
  void push_all(bool is_activation, std::uint32_t index) {
    for (int level = 1; level <= highest_level(problem_, is_activation, index); ++level)
      push({is_activation, index, level});
  }
  int level_of(const Promotion& promotion) const {
    return promotion.is_activation ? static_cast<int>(choice_of(problem_.items[promotion.index], choices_))
                                   : static_cast<int>(choices_.loads[promotion.index]);
  }
  void set(const Promotion& promotion, Choices& choices) const {
    if (promotion.is_activation)
      choose(problem_.items[promotion.index], static_cast<ActivationChoice>(promotion.level), choices);
    else
      choices.loads[promotion.index] = static_cast<LoadChoice>(promotion.level);
  }

  void push(const Promotion& promotion) {
    if (promotion.level <= level_of(promotion)) return;
    Choices promoted = choices_;
    set(promotion, promoted);
    Sketch sketch = judged(problem_, promoted);
    double bytes = held_bytes(problem_, promotion.is_activation, promotion.index, promotion.level);
    double seconds = std::max(0.0, current_.step_seconds - sketch.step_seconds);
    // Less than a nanosecond is the simulation's rounding.
    queue_.push({seconds < 1e-9 ? 0 : seconds / bytes,
                 (static_cast<double>(current_.link_bytes) - static_cast<double>(sketch.link_bytes)) / bytes,
                 promotion, path_.size()});
  }

  void take(const Promotion& promotion) {
    set(promotion, choices_);
    current_ = judged(problem_, choices_);
    path_.push_back(choices_);
  }

  const Problem& problem_;
  Choices choices_;
  Sketch current_;
  std::priority_queue<Gain> queue_;
  std::vector<Choices> path_;
};

// Positions of the serial sketch with more than `most` live bytes.
std::vector<Position> too_large(const Problem& problem, const Draft& draft, Bytes most) {
  LiveBytes live(static_cast<Position>(draft.sequence.size()));
  for (const DraftLifetime& lifetime : draft.lifetimes)
    live.add(lifetime.first, lifetime.last, problem.layout.buckets[lifetime.bucket].bytes);
  std::vector<Position> positions;
  for (Position p = 0; p < static_cast<Position>(draft.sequence.size()); ++p)
    if (live.at(p) > most) positions.push_back(p);
  return positions;
}

// Where more than `most` bytes are live, what a replayed op makes there is offloaded instead, or what lies
// idle there for later ops: brought back for each op that reads it, if it crosses units, or offloaded rather
// than rebuilt so early. If that does not do, so is all of the unit.
class ReplayTrimmer {
 public:
  ReplayTrimmer(const Problem& problem, Choices choices, Bytes most)
      : problem_(problem), choices_(std::move(choices)), most_(most) {
    item_of_.assign(problem.layout.buckets.size(), no_id);
    for (std::size_t i = 0; i < problem.items.size(); ++i)
      for (BucketId bucket : problem.items[i].buckets) item_of_[bucket] = i;
  }

  Choices run() {
    constexpr int rounds = 4;
    for (int round = 0; round < rounds && look(); ++round)
      if (!stop_replays()) move_idle();
    if (look()) give_up_units();
    return std::move(choices_);
  }

 private:
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
      else if (choice_of(item, choices_) == ActivationChoice::offload)
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
  std::vector<std::size_t> item_of_;  // by bucket
  Draft draft_;                       // the serial sketch
  std::vector<Position> positions_;   // too large
};

}  // namespace

int highest_level(const Problem& problem, bool is_activation, std::uint32_t index) {
  if (is_activation) return static_cast<int>(ActivationChoice::keep);
  const BucketRole role = problem.layout.roles[index];
  if (role == BucketRole::parameter) return static_cast<int>(LoadChoice::resident);
  return role == BucketRole::input ? static_cast<int>(LoadChoice::held) : 0;
}

double held_bytes(const Problem& problem, bool is_activation, std::uint32_t index, int level) {
  constexpr double passing = 0.25;  // of what only passes through while it is transferred
  if (is_activation) {
    // Of micro-batches one after another, those of the others are not there at the same time.
    const bool alone = problem.analysis.order == MicroBatchOrder::batch_major;
    const double bytes =
        static_cast<double>(problem.items[index].bytes) / (alone ? problem.graph->micro_batches : 1);
    return std::max(1.0, level == static_cast<int>(ActivationChoice::offload) ? passing * bytes : bytes);
  }
  double bytes = static_cast<double>(problem.layout.buckets[index].bytes);
  if (level == static_cast<int>(LoadChoice::each_unit)) bytes *= passing;
  if (level == static_cast<int>(LoadChoice::resident))
    bytes += static_cast<double>(problem.layout.state_bytes[index]);
  return std::max(1.0, bytes);
}

Choices lowest_choices(const Problem& problem) {
  Choices choices;
  choices.activations.assign(problem.layout.buckets.size(), ActivationChoice::recompute);
  for (const ActivationItem& item : problem.items)
    if (!item.rebuildable) choose(item, ActivationChoice::offload, choices);
  choices.loads.assign(problem.layout.buckets.size(), LoadChoice::each_op);
  return choices;
}

std::vector<Choices> minimum_candidates(const Problem& problem) {
  auto all = [&](ActivationChoice rebuildable, ActivationChoice inputs) {
    Choices choices = lowest_choices(problem);
    for (const ActivationItem& item : problem.items)
      choose(item, item.rebuildable ? rebuildable : inputs, choices);
    return choices;
  };
  using enum ActivationChoice;
  std::vector<Choices> candidates{lowest_choices(problem), all(recompute, keep), all(offload, offload),
                                  all(keep, keep)};
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

std::vector<Choices> simulated_path(const Problem& problem) { return Promoter(problem).run(); }

}  // namespace stowage
