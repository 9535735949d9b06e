#include "offload/plan/small_front.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_set>
#include <utility>

#include "offload/plan/changes.h"
#include "offload/plan/residency.h"

namespace stowage {
namespace {

constexpr std::size_t most_small_ops = 20;
constexpr std::size_t most_choices = 20'000;
constexpr std::size_t most_rungs = 400;
constexpr std::size_t most_near_choices = 256;               // whose orders are searched at a limit
constexpr std::size_t most_postponed = 48;                   // of them, whose offloads change places too
constexpr std::size_t wide_search = 96, narrow_search = 24;  // search_orders()
constexpr int far_postponed = 4, near_postponed = 2;         // ops whose offloads one lets pass
constexpr std::size_t most_others = 4;                       // at a limit
constexpr std::size_t most_best_above = 32;
constexpr double near_best = 1.3;
constexpr double slower = 1 + 1e-9, faster = 1 - 1e-9;

// Of what a period consists: choices that make no difference have the same.
std::uint64_t signature_of(const Draft& draft) {
  std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a, a word at a time
  auto add = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3U; };
  for (const SequenceStep& step : draft.sequence) add(2 * std::uint64_t{step.op} + (step.recompute ? 1 : 0));
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    add(lifetime.bucket);
    add(static_cast<std::uint64_t>(lifetime.first_use));
    add(static_cast<std::uint64_t>(lifetime.last_use));
    add((lifetime.prefetched ? 1U : 0U) + (lifetime.offloaded ? 2U : 0U) + (lifetime.resident ? 4U : 0U) +
        (lifetime.copy ? 8U : 0U));
  }
  return hash;
}

// One item or bucket, and the levels that make a difference.
struct Decision {
  std::vector<Change> levels;
};

class ChoicePool {
 public:
  ChoicePool(const Problem& problem, const LimitedScheduler& scheduler)
      : problem_(problem), scheduler_(scheduler) {}

  // Empty where there are too many.
  std::vector<std::shared_ptr<const Period>> run(const std::vector<Choices>& paths) {
    const std::vector<Decision> decisions = find_decisions();
    double count = 1;
    for (const Decision& decision : decisions) count *= static_cast<double>(decision.levels.size());
    if (count > static_cast<double>(most_choices)) return {};
    for (const Choices& choices : paths) add(choices);
    add_all(decisions, 0, lowest_choices(problem_));
    return std::move(pool_);
  }

 private:
  // Levels that are the same beside the lowest of all else and beside the highest are taken for the same.
  std::vector<Decision> find_decisions() const {
    std::vector<Decision> decisions;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> seen;  // of the decision at hand
    for (const Change& change : all_changes(problem_)) {
      const bool next = decisions.empty() || decisions.back().levels.front().index != change.index ||
                        decisions.back().levels.front().is_activation != change.is_activation;
      if (next) {
        decisions.emplace_back();
        seen.clear();
      }
      const std::pair difference(signature_with(lowest_choices(problem_), change),
                                 signature_with(resident_choices(problem_), change));
      if (std::find(seen.begin(), seen.end(), difference) != seen.end()) continue;
      seen.push_back(difference);
      decisions.back().levels.push_back(change);
    }
    return decisions;
  }
  std::uint64_t signature_with(Choices choices, const Change& change) const {
    apply(problem_, change, choices);
    return signature_of(make_lifetimes(*problem_.graph, problem_.analysis, problem_.layout, choices));
  }
  void add_all(const std::vector<Decision>& decisions, std::size_t first, const Choices& choices) {
    if (first == decisions.size()) return add(choices);
    for (const Change& change : decisions[first].levels) {
      Choices changed = choices;
      apply(problem_, change, changed);
      add_all(decisions, first + 1, changed);
    }
  }
  void add(const Choices& choices) {
    std::shared_ptr<const Period> period = scheduler_.period(choices);
    if (signatures_.insert(signature_of(period->draft)).second) pool_.push_back(std::move(period));
  }

  const Problem& problem_;
  const LimitedScheduler& scheduler_;
  std::unordered_set<std::uint64_t> signatures_;
  std::vector<std::shared_ptr<const Period>> pool_;
};

class SmallFront {
 public:
  SmallFront(const Problem& problem, std::vector<std::shared_ptr<const Period>> periods, Bytes least)
      : scheduler_(problem), least_(least) {
    for (std::shared_ptr<const Period>& period : periods) {
      const double least = order_bound(scheduler_.rates(), *period);
      pool_.push_back({std::move(period), 0, least});
    }
  }

  std::vector<LimitedSketch> run() {
    Bytes limit = unlimited;
    while (find_best(limit)) {
      if (rungs_.empty() || best_.seconds > rungs_.front().best.seconds * slower) search(limit);
      rungs_.push_back({best_, std::move(others_)});
      if (limit <= least_ || best_.peak == 0 || rungs_.size() == most_rungs) break;
      limit = std::max(least_, best_.peak - std::min(best_.peak, Plan{}.alignment));
    }
    std::vector<LimitedSketch> front;
    for (std::size_t i = rungs_.size(); i-- > 0;) {
      if (i + 1 < rungs_.size() && rungs_[i + 1].best.seconds < rungs_[i].best.seconds) take_from_below(i);
      for (LimitedSketch& other : rungs_[i].others) front.push_back(std::move(other));
      front.push_back(rungs_[i].best);
    }
    std::reverse(front.begin(), front.end());
    return front;
  }

 private:
  struct Entry {
    std::shared_ptr<const Period> period;
    double seconds = 0;  // in the order of need, at a limit no lower than the one at hand: at least
    double least = 0;    // without a limit, in any order
  };
  struct Rung {
    LimitedSketch best;
    std::vector<LimitedSketch> others;
  };

  void take_from_below(std::size_t i) {
    const Bytes limit = rungs_[i].best.limit;
    rungs_[i].best = rungs_[i + 1].best;
    rungs_[i].best.limit = limit;
  }

  // In the order of need.
  bool find_best(Bytes limit) {
    best_ = {};
    best_.seconds = std::numeric_limits<double>::infinity();
    others_.clear();
    std::vector<std::pair<double, std::size_t>> order = sorted();
    for (const auto& [seconds, i] : order) {
      if (seconds > best_.seconds * slower) break;
      time(pool_[i], limit);
    }
    return best_.seconds < std::numeric_limits<double>::infinity();
  }
  std::vector<std::pair<double, std::size_t>> sorted() const {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t i = 0; i < pool_.size(); ++i) order.emplace_back(pool_[i].seconds, i);
    std::sort(order.begin(), order.end());
    return order;
  }
  void time(Entry& entry, Bytes limit) {
    const double cutoff = best_.seconds * near_best;
    std::optional<LimitedSketch> sketch = scheduler_.run(entry.period, limit, cutoff);
    entry.seconds = sketch ? sketch->seconds : cutoff;
    if (!sketch) return;
    const bool better = sketch->seconds < best_.seconds * faster ||
                        (sketch->seconds < best_.seconds * slower && sketch->peak < best_.peak);
    if (better) {
      std::swap(*sketch, best_);
      postponed_.clear();
    }
    if (sketch->period) add_other(std::move(*sketch));
  }
  // Those that are slower than the best, the next fastest, each time once.
  void add_other(LimitedSketch sketch) {
    others_.push_back(std::move(sketch));
    std::stable_sort(others_.begin(), others_.end(), [](const LimitedSketch& a, const LimitedSketch& b) {
      return a.seconds != b.seconds ? a.seconds < b.seconds : a.peak < b.peak;
    });
    double last = best_.seconds;
    std::erase_if(others_, [&](const LimitedSketch& other) {
      const bool same = other.seconds <= last * slower;
      if (!same) last = other.seconds;
      return same;
    });
    if (others_.size() > most_others) others_.resize(most_others);
  }

  // In other orders.
  void search(Bytes limit) {
    search_one(best_.period, limit, wide_search);
    for (const std::shared_ptr<const Period>& period : best_above_) try_orders(period, limit);
    const std::vector<std::pair<double, std::size_t>> order = sorted();
    for (std::size_t i = 0; i < std::min(order.size(), most_near_choices); ++i) {
      if (order[i].first > best_.seconds * near_best) break;
      const std::shared_ptr<const Period>& period = pool_[order[i].second].period;
      if (pool_[order[i].second].least >= best_.seconds * faster) continue;
      try_orders(period, limit);
      if (i < most_postponed) postpone(period, limit, narrow_search);
    }
    postpone(best_.period, limit, wide_search);
    postpone_more(limit);
    remember(best_.period);
    for (const LimitedSketch& other : others_) remember(other.period);
  }
  void try_orders(const std::shared_ptr<const Period>& period, Bytes limit) {
    if (search_one(period, limit, narrow_search)) search_one(period, limit, wide_search);
  }
  void remember(const std::shared_ptr<const Period>& period) {
    if (std::find(best_above_.begin(), best_above_.end(), period) != best_above_.end()) return;
    best_above_.push_front(period);
    if (best_above_.size() > most_best_above) best_above_.pop_back();
  }
  // Offloads, one of them at a time, beside these. Its own share of the period: best_ changes.
  void postpone(std::shared_ptr<const Period> period, Bytes limit, std::size_t width,
                const std::vector<Postponement>& others = {}) {
    for (LifetimeId id : postponable(*period)) {
      if (std::any_of(others.begin(), others.end(), [&](const Postponement& each) { return each.id == id; }))
        continue;
      for (int by = 0; by <= (width == wide_search ? far_postponed : near_postponed); ++by) {
        std::vector<Postponement> postponed = others;
        postponed.push_back({id, by});
        search_one(period, limit, width, std::move(postponed));
      }
    }
  }
  // More of them, as long as each more makes it faster.
  void postpone_more(Bytes limit) {
    for (std::size_t count = 0; postponed_.size() > count;
         postpone(best_.period, limit, wide_search, std::vector(postponed_)))
      count = postponed_.size();
  }
  bool search_one(const std::shared_ptr<const Period>& period, Bytes limit, std::size_t width,
                  std::vector<Postponement> postponed = {}) {
    const OrderEffort effort{.width = width, .postponed = postponed};
    std::vector<LimitedSketch> found = scheduler_.search(period, limit, best_.seconds * faster, effort);
    if (found.empty()) return false;
    std::swap(best_, found.front());
    postponed_ = std::move(postponed);
    add_other(std::move(found.front()));
    return true;
  }

  LimitedScheduler scheduler_;
  Bytes least_;
  std::vector<Entry> pool_;
  LimitedSketch best_;
  std::vector<Postponement> postponed_;  // in best_
  std::vector<LimitedSketch> others_;
  std::vector<Rung> rungs_;                               // the highest limit first
  std::deque<std::shared_ptr<const Period>> best_above_;  // what was fastest at higher limits, the last first
};

}  // namespace

std::optional<std::vector<LimitedSketch>> small_front(const Problem& problem,
                                                      const std::vector<Choices>& paths, Bytes least) {
  if (problem.graph->ops.size() > most_small_ops) return std::nullopt;
  const LimitedScheduler scheduler(problem);
  std::vector<std::shared_ptr<const Period>> pool = ChoicePool(problem, scheduler).run(paths);
  if (pool.empty()) return std::nullopt;
  return SmallFront(problem, std::move(pool), least).run();
}

}  // namespace stowage
