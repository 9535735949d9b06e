#include "offload/plan/schedule.h"

#include <algorithm>
#include <numeric>

#include "src/graph/cost.h"

namespace stowage {
namespace {

class Scheduler {
 public:
  Scheduler(Draft draft, const Durations& durations, std::uint32_t distance)
      : draft_(std::move(draft)), durations_(durations), distance_(distance) {
    starts_.push_back(0);
    for (double seconds : durations.sequence) starts_.push_back(starts_.back() + seconds);
  }

  Draft run() {
    do {
      set_uses();
      set_offloads();
      set_prefetches();
    } while (join_touching());
    return std::move(draft_);
  }

 private:
  Position end() const { return static_cast<Position>(draft_.sequence.size()); }
  double start_of(Position p) const { return starts_[static_cast<std::size_t>(p)]; }

  void set_uses() {
    for (DraftLifetime& lifetime : draft_.lifetimes) {
      const bool always = lifetime.resident || lifetime.whole_step;
      lifetime.first = always ? 0 : lifetime.first_use;
      lifetime.last = always ? end() : lifetime.last_use + 1;
    }
  }

  template <class Predicate, class Key>
  std::vector<LifetimeId> ordered(Predicate&& wanted, Key&& key) const {
    std::vector<LifetimeId> ids;
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id)
      if (wanted(draft_.lifetimes[id])) ids.push_back(id);
    std::stable_sort(ids.begin(), ids.end(), [&](LifetimeId a, LifetimeId b) {
      return key(draft_.lifetimes[a]) < key(draft_.lifetimes[b]);
    });
    return ids;
  }

  // Bytes are free at the first position that starts after the offload has ended, but no later than
  // when the `distance`-th offload after it is ready.
  void set_offloads() {
    if (distance_ == 0) return;
    std::vector<LifetimeId> queue = ordered([](const DraftLifetime& l) { return l.offloaded; },
                                            [](const DraftLifetime& l) { return l.last_use; });
    double link_free = 0;
    for (std::size_t i = 0; i < queue.size(); ++i) {
      DraftLifetime& lifetime = draft_.lifetimes[queue[i]];
      double seconds = durations_.d2h[lifetime.bucket];
      link_free = std::max(link_free, start_of(lifetime.last_use + 1)) + seconds;
      auto free = std::lower_bound(starts_.begin(), starts_.end(), link_free + seconds);
      Position release = std::min<Position>(end(), free - starts_.begin());
      if (i + distance_ < queue.size())
        release = std::min(release, draft_.lifetimes[queue[i + distance_]].last_use + 1);
      lifetime.last = std::max(lifetime.last_use + 1, release);
    }
  }

  void set_prefetches() {
    std::vector<LifetimeId> queue =
        ordered([](const DraftLifetime& l) { return l.prefetched && !l.whole_step; },
                [](const DraftLifetime& l) { return l.first_use; });
    double next_start = starts_.back();
    for (std::size_t i = queue.size(); i-- > 0 && distance_ > 0;) {
      DraftLifetime& lifetime = draft_.lifetimes[queue[i]];
      double seconds = durations_.h2d[lifetime.bucket];
      next_start = std::min(start_of(lifetime.first_use) - seconds, next_start) - seconds;
      auto after = std::upper_bound(starts_.begin(), starts_.end(), std::max(0.0, next_start));
      Position claim = std::min<Position>(after - starts_.begin() - 1, lifetime.first_use);
      if (i >= distance_) claim = std::max(claim, draft_.lifetimes[queue[i - distance_]].first_use);
      lifetime.first = std::min(claim, lifetime.first_use);
    }
    keep_order(queue);
  }

  // The link works in order of need, so nothing claims before what stands ahead of it; and nothing
  // of the update phase before the gate.
  void keep_order(const std::vector<LifetimeId>& queue) {
    Position reached = 0;
    for (LifetimeId id : queue) {
      DraftLifetime& lifetime = draft_.lifetimes[id];
      if (lifetime.first_use >= draft_.backward_end) reached = std::max(reached, draft_.backward_end);
      reached = lifetime.first = std::max(lifetime.first, reached);
    }
  }

  // True if some pair was joined: the queues are then shorter, and everything is set anew.
  bool join_touching() {
    std::vector<LifetimeId> order =
        ordered([](const DraftLifetime& l) { return !l.copy; },
                [](const DraftLifetime& l) { return std::pair(l.bucket, l.first_use); });
    std::vector<LifetimeId> target(draft_.lifetimes.size());
    std::iota(target.begin(), target.end(), 0U);
    bool joined = false;
    for (std::size_t i = 1; i < order.size(); ++i) {
      DraftLifetime& later = draft_.lifetimes[order[i]];
      LifetimeId into = target[order[i - 1]];
      DraftLifetime& earlier = draft_.lifetimes[into];
      if (earlier.bucket != later.bucket || !later.prefetched || later.first > earlier.last) continue;
      earlier.last_use = later.last_use;
      earlier.offloaded = later.offloaded;
      target[order[i]] = into;
      joined = true;
    }
    if (joined) remap(target);
    return joined;
  }
  void remap(const std::vector<LifetimeId>& target) {
    std::vector<LifetimeId> place(target.size(), no_id);
    std::vector<DraftLifetime> kept;
    for (LifetimeId id = 0; id < target.size(); ++id)
      if (target[id] == id) {
        place[id] = static_cast<LifetimeId>(kept.size());
        kept.push_back(draft_.lifetimes[id]);
      }
    draft_.lifetimes = std::move(kept);
    for (auto& uses : draft_.uses)
      for (LifetimeId& id : uses) id = place[target[id]];
  }

  Draft draft_;
  const Durations& durations_;
  std::uint32_t distance_;
  std::vector<double> starts_;  // by position, and the end
};

}  // namespace

Durations make_durations(const Graph& graph, const Draft& draft, const BucketLayout& layout,
                         const Machine& machine) {
  Durations durations;
  for (const SequenceStep& step : draft.sequence)
    durations.sequence.push_back(op_seconds(graph.op(step.op), machine));
  for (const Bucket& bucket : layout.buckets) {
    durations.h2d.push_back(machine.h2d.seconds(bucket.bytes));
    durations.d2h.push_back(machine.d2h.seconds(bucket.bytes));
  }
  return durations;
}

Draft schedule(Draft draft, const Durations& durations, std::uint32_t distance) {
  return Scheduler(std::move(draft), durations, distance).run();
}

}  // namespace stowage
