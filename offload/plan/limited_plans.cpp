#include "offload/plan/limited_plans.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "offload/plan/changes.h"
#include "offload/plan/packing.h"

namespace stowage {
namespace {

constexpr double same_seconds = 1e-9;  // of a step: the simulation's rounding
const Bytes packing_unit = Plan{}.alignment;
constexpr std::size_t most_packed = 100, most_varied = 50;  // lifetimes
constexpr std::size_t most_changed_ops = 20;
constexpr std::size_t most_packing_work = 50'000;  // of a first search: its steps times the lifetimes
constexpr double slower_seconds = 1.125;           // of the sketch's
constexpr std::size_t most_moved = 512;            // drafts with a load elsewhere
constexpr std::size_t most_slower = 128;           // that are tried
constexpr std::size_t most_lower_arenas = 3;       // that are tried
constexpr Bytes same_arena = 64;                   // in parts of it: a difference that counts for nothing

// An offload that was put off may end up behind what waits for its bytes.
bool waits_for_later(const Plan& plan) {
  for (InstructionId id = 0; id < plan.instructions.size(); ++id)
    for (const Wait& wait : plan.instructions[id].waits)
      if (wait.steps_back == 0 && wait.instruction > id) return true;
  return false;
}

std::vector<PackingItem> items_of(const Problem& problem, const Draft& draft) {
  std::vector<PackingItem> items;
  for (const DraftLifetime& lifetime : draft.lifetimes)
    items.push_back({lifetime.span_first, lifetime.span_last, lifetime.span_wrap,
                     problem.layout.buckets[lifetime.bucket].bytes});
  return items;
}

// Schedules that take as long as the sketch, each as a draft with the times of its lifetimes.
class Drafter {
 public:
  Drafter(const LimitedScheduler& scheduler, const LimitedSketch& sketch)
      : scheduler_(scheduler), sketch_(sketch) {}

  // Of these times, with loads as soon as they may start, or as late.
  std::vector<Draft> drafts() const { return drafts_of(sketch_); }
  // Those with some loads early and some late; and those of other orders that take as long, first of all
  // without joined loads: of two lifetimes each has its own place.
  std::vector<Draft> more() const {
    constexpr std::uint64_t some[] = {0x5555555555555555U, 0xaaaaaaaaaaaaaaaaU, 0x3333333333333333U,
                                      0xccccccccccccccccU};
    std::vector<Draft> found;
    for (const bool may_join : {false, true})
      add(sketch_.period, {.width = 48, .most_found = 4, .may_join = may_join}, found);
    for (std::uint64_t late : some) found.push_back(timed(sketch_, late));
    return found;
  }
  // With one load elsewhere in those that take as long.
  std::vector<Draft> moved() const {
    const double cutoff = sketch_.seconds * (1 + same_seconds);
    std::vector<LimitedSketch> from = scheduler_.search(sketch_.period, sketch_.limit, cutoff,
                                                        {.width = 48, .most_found = 4, .may_join = false});
    from.push_back(sketch_);
    std::vector<Draft> found;
    for (const LimitedSketch& base : from)
      for (const LimitedSketch& other : scheduler_.moved(base, cutoff)) {
        if (found.size() >= most_moved) return found;
        for (Draft& draft : drafts_of(other)) found.push_back(std::move(draft));
      }
    return found;
  }
  // Of choices that are one change away, or two: what is sent away and brought back gets another place.
  std::vector<Draft> once_changed() const {
    std::vector<Draft> found;
    for_each_change(sketch_.choices(), [&](const Choices& choices, std::size_t) {
      add(scheduler_.period(choices), {.width = 48, .most_found = 8, .may_join = false}, found);
    });
    return found;
  }
  std::vector<Draft> twice_changed() const {
    std::vector<Draft> found;
    for_each_change(sketch_.choices(), [&](const Choices& once, std::size_t first) {
      for_each_change(once, [&](const Choices& twice, std::size_t second) {
        if (second < first && twice != sketch_.choices())
          add(scheduler_.period(twice), {.width = 8, .most_found = 1, .may_join = false}, found);
      });
    });
    return found;
  }
  // Of the same choices and of those one change away, or two, that take somewhat longer: fastest first.
  std::vector<LimitedSketch> slower() const {
    std::vector<LimitedSketch> found;
    const double cutoff = sketch_.seconds * slower_seconds;
    const auto search = [&](const std::shared_ptr<const Period>& period, std::size_t width,
                            std::size_t most) {
      for (LimitedSketch& other : scheduler_.search(period, sketch_.limit, cutoff,
                                                    {.width = width, .most_found = most, .may_join = false}))
        found.push_back(std::move(other));
    };
    search(sketch_.period, 96, 32);
    for_each_change(sketch_.choices(), [&](const Choices& once, std::size_t first) {
      search(scheduler_.period(once), 48, 8);
      for_each_change(once, [&](const Choices& twice, std::size_t second) {
        if (second < first && twice != sketch_.choices()) search(scheduler_.period(twice), 8, 2);
      });
    });
    std::stable_sort(found.begin(), found.end(),
                     [](const LimitedSketch& a, const LimitedSketch& b) { return a.seconds < b.seconds; });
    return found;
  }
  std::vector<Draft> drafts_of(const LimitedSketch& sketch) const {
    return {timed(sketch, 0), timed(sketch, ~std::uint64_t{0})};
  }

 private:
  Draft timed(const LimitedSketch& sketch, std::uint64_t late) const {
    return timed_draft(scheduler_.rates(), *sketch.period, sketch.times, late);
  }
  void add(const std::shared_ptr<const Period>& period, const OrderEffort& effort,
           std::vector<Draft>& found) const {
    for (const LimitedSketch& other :
         scheduler_.search(period, sketch_.limit, sketch_.seconds * (1 + same_seconds), effort))
      for (Draft& draft : drafts_of(other)) found.push_back(std::move(draft));
  }
  template <typename Use>
  void for_each_change(const Choices& from, Use&& use) const {
    const std::vector<Change> changes = all_changes(scheduler_.problem());
    for (std::size_t i = 0; i < changes.size(); ++i) {
      Choices changed = from;
      apply(scheduler_.problem(), changes[i], changed);
      if (changed != from) use(changed, i);
    }
  }

  const LimitedScheduler& scheduler_;
  const LimitedSketch& sketch_;
};

class Completer {
 public:
  Completer(const LimitedScheduler& scheduler, const LimitedSketch& sketch, Bytes most,
            const std::function<void(Plan)>& offer)
      : problem_(scheduler.problem()),
        drafter_(scheduler, sketch),
        sketch_(sketch),
        most_(most),
        offer_(offer),
        lifetimes_(sketch.times.begin.size()),
        most_nodes_(most_packing_work / (lifetimes_ + 1)),
        limit_(std::min(sketch.limit, 2 * sketch.peak)),
        least_(std::min(sketch.peak, limit_)),
        is_large_(problem_.graph->ops.size() > most_changed_ops) {
    add(drafter_.drafts());
    find_lower_arenas();
  }

  void run() {
    offer(complete(problem_, drafts_.front()));
    if (lifetimes_ > most_packed || pack_lower(0, most_nodes_)) return;
    const Packed at_least = pack_within(least_, most_nodes_);
    if (at_least.offer == Offer::as_wanted) return;
    if (vary(at_least.offer == Offer::larger)) return;
    if (at_least.offer == Offer::none) widen();
    if (!is_large_ && at_least.offer != Offer::larger) slow_down();
  }

 private:
  enum class Offer : std::uint8_t { none, slower, larger, as_wanted };
  struct Packed {
    Offer offer = Offer::none;
    Bytes arena = 0;
  };

  void add(std::vector<Draft> drafts) {
    for (Draft& draft : drafts)
      if (is_new(items_of(problem_, draft))) drafts_.push_back(std::move(draft));
  }
  bool is_new(std::vector<PackingItem> items) {
    if (std::find(items_.begin(), items_.end(), items) != items_.end()) return false;
    items_.push_back(std::move(items));
    return true;
  }
  // What the arena may be where the topmost item does not fill its last unit.
  void find_lower_arenas() {
    for (const PackingItem& item : items_.front())
      if (const Bytes part = item.bytes % packing_unit; part > 0 && least_ >= packing_unit)
        lower_arenas_.push_back(least_ - packing_unit + part);
    std::sort(lower_arenas_.begin(), lower_arenas_.end());
    lower_arenas_.erase(std::unique(lower_arenas_.begin(), lower_arenas_.end()), lower_arenas_.end());
    if (lower_arenas_.size() > most_lower_arenas) lower_arenas_.resize(most_lower_arenas);
  }

  // Nothing faster than the sketch says: who reads that need not ask for its plans.
  Offer offer(Plan plan) {
    const double seconds = plan.predicted_step_seconds;
    if (plan.device_peak_bytes > sketch_.limit || waits_for_later(plan)) return Offer::none;
    if (seconds < sketch_.seconds * (1 - same_seconds)) return Offer::none;
    Offer offer = Offer::as_wanted;
    if (seconds > sketch_.seconds * (1 + same_seconds))
      offer = Offer::slower;
    else if (plan.device_peak_bytes > most_)
      offer = Offer::larger;
    offer_(std::move(plan));
    return offer;
  }
  // Of drafts, from this one on, that have places in so many bytes: up to the first that takes as long as the
  // sketch, or else of the first that was offered.
  Packed pack_within(Bytes arena, std::size_t nodes, std::size_t first = 0) {
    Packed found;
    for (std::size_t i = first; i < drafts_.size(); ++i) {
      const auto offsets = pack(items_[i], arena, packing_unit, nodes);
      if (!offsets) continue;
      Plan plan = complete_at(problem_, drafts_[i], *offsets);
      Packed packed{Offer::none, plan.device_peak_bytes};
      packed.offer = offer(std::move(plan));
      if (packed.offer > Offer::slower) return packed;
      if (found.offer == Offer::none) found = packed;
    }
    return found;
  }
  bool pack_lower(std::size_t first, std::size_t nodes) {
    return std::any_of(lower_arenas_.begin(), lower_arenas_.end(), [&](Bytes arena) {
      return pack_within(arena, nodes, first).offer == Offer::as_wanted;
    });
  }

  // With other drafts, in the peak's bytes; or in fewer where there are places in those.
  bool vary(bool in_fewer) {
    if (lifetimes_ > most_varied) return false;
    const auto packs = [&](std::size_t first, std::size_t nodes) {
      if (!in_fewer) {
        const Offer found = pack_within(least_, nodes, first).offer;
        if (found == Offer::as_wanted) return true;
        in_fewer = found == Offer::larger;
      }
      return in_fewer && pack_lower(first, nodes);
    };
    add(drafter_.more());
    if (packs(0, 64 * most_nodes_)) return true;
    if (is_large_) return false;
    std::size_t first = drafts_.size();
    add(drafter_.moved());
    if (packs(first, 4 * most_nodes_)) return true;
    first = drafts_.size();
    add(drafter_.once_changed());
    if (packs(first, 4 * most_nodes_)) return true;
    first = drafts_.size();
    add(drafter_.twice_changed());
    return packs(first, 4 * most_nodes_);
  }
  // In more bytes than the peak, but as few as may be.
  void widen() {
    Bytes failed = least_;
    for (Bytes part : {16U, 8U, 4U, 2U, 1U}) {
      const Bytes arena = least_ + (limit_ - least_) / part;
      if (arena < failed + packing_unit) continue;
      const Packed found = pack_within(arena, 8 * most_nodes_);
      if (found.offer != Offer::none) return narrow(failed, found.arena);
      failed = arena;
    }
  }
  void narrow(Bytes failed, Bytes arena) {
    while (arena > failed + arena / same_arena) {
      const Bytes middle = failed + (arena - failed) / 2;
      const Packed found = pack_within(middle, 8 * most_nodes_);
      if (found.offer == Offer::none)
        failed = middle;
      else
        arena = found.arena;
    }
  }

  // Slower than the sketch says, the fastest first: each in fewer bytes than those before, up to one of at
  // most `most`.
  void slow_down() {
    Bytes highest = limit_;
    std::size_t tried = 0;
    for (const LimitedSketch& slower : drafter_.slower())
      for (const Draft& draft : drafter_.drafts_of(slower)) {
        std::vector<PackingItem> items = items_of(problem_, draft);
        if (!is_new(items)) continue;
        if (tried++ == most_slower) return;
        const std::optional<Bytes> taken = pack_below(highest, draft, items, slower.seconds);
        if (!taken) continue;
        highest = *taken - std::min(*taken, packing_unit);
        if (*taken <= most_ || highest < least_) return;
      }
  }
  // Bytes of a plan that takes no longer than that.
  std::optional<Bytes> pack_below(Bytes highest, const Draft& draft, const std::vector<PackingItem>& items,
                                  double seconds) {
    for (Bytes arena : {least_, least_ + (highest - least_) / 2, highest}) {
      const auto offsets = pack(items, arena, packing_unit, most_nodes_);
      if (!offsets) continue;
      Plan plan = complete_at(problem_, draft, *offsets);
      const Bytes taken = plan.device_peak_bytes;
      const bool as_fast = plan.predicted_step_seconds <= seconds * (1 + same_seconds);
      if (offer(std::move(plan)) != Offer::none && as_fast) return taken;
      return std::nullopt;
    }
    return std::nullopt;
  }

  const Problem& problem_;
  Drafter drafter_;
  const LimitedSketch& sketch_;
  Bytes most_;
  const std::function<void(Plan)>& offer_;
  std::size_t lifetimes_, most_nodes_;
  Bytes limit_, least_;
  bool is_large_;
  std::vector<Draft> drafts_;
  // All different: of each draft, and behind them of what was slower.
  std::vector<std::vector<PackingItem>> items_;
  std::vector<Bytes> lower_arenas_;
};

}  // namespace

void complete_each(const LimitedScheduler& scheduler, const LimitedSketch& sketch, Bytes most,
                   const std::function<void(Plan)>& offer) {
  Completer(scheduler, sketch, most, offer).run();
}

}  // namespace stowage
