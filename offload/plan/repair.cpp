#include "offload/plan/repair.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "offload/plan/changes.h"
#include "offload/plan/residency.h"
#include "offload/plan/small_front.h"

namespace stowage {
namespace {

constexpr Bytes limits = 64;  // at most, over the range of memory
constexpr std::size_t most_thorough_ops = 28, most_searched_ops = 20;
constexpr std::size_t most_in_sets = 4;
constexpr std::size_t most_known_ops = 100'000;  // whose periods are kept
constexpr std::size_t most_near = 24;            // whose orders are searched at a limit
constexpr std::size_t wide = 48, narrow = 8;     // search_orders()
constexpr std::size_t most_labels = 300'000;     // of it, in all
const Bytes limit_unit = Plan{}.alignment;
constexpr double near = 1.2;  // of choices that a better order may make the best
constexpr double gain = 1 - 1e-9, same = 1 + 1e-12;

class Repairer {
 public:
  Repairer(const Problem& problem, const std::vector<Choices>& paths, Bytes least, std::size_t most_ops)
      : problem_(problem),
        scheduler_(problem),
        paths_(paths),
        least_(least),
        ops_left_(most_ops),
        thorough_(problem.graph->ops.size() <= most_thorough_ops),
        searches_(problem.graph->ops.size() <= most_searched_ops),
        changes_(all_changes(problem)) {}

  std::vector<LimitedSketch> run() {
    descend();
    ascend();
    std::vector<LimitedSketch> front;
    for (Rung& rung : rungs_) front.push_back(std::move(rung.best));
    return front;
  }

 private:
  struct Known {
    std::shared_ptr<const Period> period;
    // What its choices took at least, at a limit no lower than the one at hand: with less they will hardly be
    // faster.
    double seconds = 0;
    Bytes searched_at = 0;  // the limit
  };
  static std::uint64_t hash_of(const Choices& choices) {
    std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
    auto add = [&](std::uint8_t value) { hash = (hash ^ value) * 0x100000001b3U; };
    for (ActivationChoice choice : choices.activations) add(static_cast<std::uint8_t>(choice));
    for (LoadChoice choice : choices.loads) add(static_cast<std::uint8_t>(choice));
    return hash;
  }
  Known& known(const Choices& choices) {
    if (known_.size() * problem_.graph->ops.size() > most_known_ops) known_.clear();
    Known& known = known_[hash_of(choices)];
    if (known.period && known.period->choices != choices) known = {};
    return known;
  }
  const std::shared_ptr<const Period>& period_of(Known& known, const Choices& choices) const {
    if (!known.period) known.period = scheduler_.period(choices);
    return known.period;
  }

  struct Rung {
    Bytes limit = 0;
    Choices choices;
    LimitedSketch best;
  };

  // Down in even steps at the most, and to the least in any case.
  void descend() {
    Bytes limit = unlimited;
    while (ops_left_ > 0 && start(limit)) {
      improve(limit);
      rungs_.push_back({limit, choices_, best_});
      const Bytes highest = rungs_.front().best.peak;
      const Bytes step = highest > least_ && !searches_ ? (highest - least_) / limits : 0;
      if (limit <= least_ || best_.peak == 0) break;
      limit = std::max(
          least_, std::min(best_.peak - std::min(best_.peak, limit_unit), limit > step ? limit - step : 0));
    }
  }
  // Up again, from what was found below.
  void ascend() {
    for (std::size_t i = rungs_.size(); i-- > 1 && ops_left_ > 0;) {
      Rung& rung = rungs_[i - 1];
      for (auto& [hash, known] : known_) known.seconds = 0;
      choices_ = rung.choices;
      best_ = rung.best;
      bool better = improves(rungs_[i].choices, rung.limit);
      if (rungs_[i].best.seconds < best_.seconds * gain) {
        best_ = rungs_[i].best;
        best_.limit = rung.limit;
        choices_ = best_.choices();
        better = true;
      }
      if (!better) continue;
      improve(rung.limit);
      rung.choices = choices_;
      rung.best = best_;
    }
  }

  // Takes the choices if they are faster than `seconds`; or as fast, with less than `peak`.
  bool evaluate(const Choices& choices, Bytes limit, double seconds, Bytes peak) {
    Known& known = this->known(choices);
    if (known.seconds > seconds * same) return false;
    const std::size_t ops = problem_.graph->ops.size();
    ops_left_ -= std::min(ops_left_, ops);
    std::optional<LimitedSketch> sketch =
        scheduler_.run(period_of(known, choices), limit, seconds * (searches_ ? near : same));
    known.seconds = sketch ? sketch->seconds : seconds * (searches_ ? near : same * same);
    if (!sketch || sketch->seconds > seconds * same ||
        (sketch->seconds >= seconds * gain && sketch->peak >= peak))
      return false;
    best_ = std::move(*sketch);
    choices_ = choices;
    return true;
  }
  bool improves(const Choices& choices, Bytes limit) {
    return evaluate(choices, limit, best_.seconds, best_.peak);
  }

  // The best to begin with: what was best before, and the paths' next choices that fit.
  bool start(Bytes limit) {
    constexpr double never = std::numeric_limits<double>::infinity();
    const Choices before = choices_;
    double seconds = never;
    Bytes peak = unlimited;
    auto offer = [&](const Choices& choices) {
      if (!evaluate(choices, limit, seconds, peak)) return;
      seconds = best_.seconds;
      peak = best_.peak;
    };
    if (!before.loads.empty()) offer(before);
    for (const Choices& choices : paths_) offer(choices);
    return seconds < never;
  }

  int level_of(const Change& change) const { return stowage::level_of(problem_, change, choices_); }
  void apply(const Change& change, Choices& choices) const { stowage::apply(problem_, change, choices); }

  void improve(Bytes limit) {
    climb(limit);
    if (thorough_ && try_resident_sets(limit)) climb(limit);
    if (searches_) search(limit);
  }
  // In other orders; of these choices, and of those that one change makes.
  void search(Bytes limit) {
    if (!rungs_.empty() && best_.seconds <= rungs_.front().best.seconds * same) return;
    search_one(choices_, limit, wide);
    for (bool improved = true; improved && labels_left_ > 0;) {
      improved = false;
      const Choices from = choices_;
      for (const Change& change : changes_) {
        Choices changed = from;
        apply(change, changed);
        if (changed != from && labels_left_ > 0 && search_one(changed, limit, narrow)) {
          improved = true;
          search_one(choices_, limit, wide);
        }
      }
      if (!improved && search_near(limit)) {
        improved = true;
        search_one(choices_, limit, wide);
      }
    }
  }
  // Of the choices that are not much slower in the order of need; the first of them that helps.
  bool search_near(Bytes limit) {
    std::vector<std::pair<double, std::uint64_t>> order;
    for (const auto& [hash, known] : known_)
      if (known.period && known.searched_at != limit && known.seconds < best_.seconds * near)
        order.emplace_back(known.seconds, hash);
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < std::min(order.size(), most_near) && labels_left_ > 0; ++i) {
      Known& known = known_[order[i].second];
      if (!known.period) continue;  // forgotten meanwhile
      known.searched_at = limit;
      const Choices choices = known.period->choices;
      if (search_one(choices, limit, narrow)) return true;
    }
    return false;
  }
  bool search_one(const Choices& choices, Bytes limit, std::size_t width) {
    const OrderEffort effort{.width = width, .most_found = 1, .labels_left = &labels_left_};
    std::vector<LimitedSketch> found =
        scheduler_.search(period_of(known(choices), choices), limit, best_.seconds * gain, effort);
    if (found.empty()) return false;
    best_ = std::move(found.front());
    choices_ = best_.choices();
    return true;
  }
  // Which buckets are resident is a matter of sets, where parameters are few: from each set, with all else at
  // the lowest level, up to where no single change helps.
  bool try_resident_sets(Bytes limit) {
    const std::vector<BucketId>& buckets = problem_.layout.parameters;
    if (buckets.size() > most_in_sets) return false;
    bool improved = false;
    for (std::uint32_t set = 0; set < 1U << buckets.size(); ++set) {
      Choices start = lowest_choices(problem_);
      bool differs = false;
      for (std::size_t i = 0; i < buckets.size(); ++i) {
        const bool resident = (set >> i & 1U) != 0;
        if (resident) start.loads[buckets[i]] = LoadChoice::resident;
        differs |= resident != (choices_.loads[buckets[i]] == LoadChoice::resident);
      }
      if (differs && ops_left_ > 0) improved |= try_from(start, limit);
    }
    return improved;
  }
  bool try_from(const Choices& start, Bytes limit) {
    const Choices choices = choices_;
    const LimitedSketch best = best_;
    if (evaluate(start, limit, std::numeric_limits<double>::infinity(), unlimited)) {
      while (ops_left_ > 0 && improve_by_one(limit)) {
      }
      if (best_.seconds < best.seconds * gain) return true;
    }
    choices_ = choices;
    best_ = best;
    return false;
  }
  void climb(Bytes limit) {
    while (ops_left_ > 0 &&
           (improve_by_one(limit) || (thorough_ && (improve_by_two(limit) || improve_by_exchange(limit))))) {
    }
  }
  bool improve_by_one(Bytes limit) {
    bool improved = false;
    const Choices from = choices_;
    for (const Change& change : changes_) {
      Choices changed = from;
      apply(change, changed);
      if (changed != from && ops_left_ > 0) improved |= improves(changed, limit);
    }
    return improved;
  }
  // One promoted and another demoted, or both the same way; the first such pair that helps.
  bool improve_by_two(Bytes limit) {
    for (std::size_t a = 0; a < changes_.size(); ++a) {
      if (changes_[a].level == level_of(changes_[a])) continue;
      for (std::size_t b = 0; b < a; ++b) {
        if (changes_[b].level == level_of(changes_[b]) || ops_left_ == 0) continue;
        Choices changed = choices_;
        apply(changes_[a], changed);
        apply(changes_[b], changed);
        if (improves(changed, limit)) return true;
      }
    }
    return false;
  }

  // Two parameter buckets exchange their levels, and one more item changes or none.
  bool improve_by_exchange(Bytes limit) {
    const std::vector<BucketId>& buckets = problem_.layout.parameters;
    for (std::size_t a = 0; a < buckets.size(); ++a)
      for (std::size_t b = 0; b < a; ++b) {
        if (choices_.loads[buckets[a]] == choices_.loads[buckets[b]]) continue;
        Choices exchanged = choices_;
        std::swap(exchanged.loads[buckets[a]], exchanged.loads[buckets[b]]);
        if (ops_left_ > 0 && improves(exchanged, limit)) return true;
        for (const Change& change : changes_) {
          Choices changed = exchanged;
          apply(change, changed);
          if (ops_left_ > 0 && changed != exchanged && improves(changed, limit)) return true;
        }
      }
    return false;
  }

  const Problem& problem_;
  LimitedScheduler scheduler_;
  const std::vector<Choices>& paths_;
  Bytes least_;
  std::size_t ops_left_;
  std::size_t labels_left_ = most_labels;
  bool thorough_;  // more than single changes
  bool searches_;  // other orders than that of need
  std::vector<Change> changes_;
  Choices choices_;
  LimitedSketch best_;
  std::unordered_map<std::uint64_t, Known> known_;
  std::vector<Rung> rungs_;  // the highest limit first
};

}  // namespace

std::vector<LimitedSketch> repaired_front(const Problem& problem, const std::vector<Choices>& paths,
                                          Bytes least, std::size_t most_ops) {
  if (most_ops == 0) return {};
  if (auto front = small_front(problem, paths, least)) return std::move(*front);
  return Repairer(problem, paths, least, most_ops).run();
}

}  // namespace stowage
