#include "offload/plan/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <deque>
#include <numeric>
#include <tuple>
#include <utility>

#include "offload/plan/schedule/live_bytes.h"

namespace stowage {
namespace {

// Returns the positions from the lifetime's first use to its last; the whole step for
// residents and whole_step.
std::pair<Position, Position> in_use(const Draft& draft, const DraftLifetime& lifetime) {
  if (lifetime.resident || lifetime.whole_step) return {0, static_cast<Position>(draft.sequence.size())};
  return {lifetime.first_use, lifetime.last_use + 1};
}
void set_uses(Draft& draft) {
  for (DraftLifetime& lifetime : draft.lifetimes) {
    std::tie(lifetime.first, lifetime.last) = in_use(draft, lifetime);
    lifetime.load = lifetime.resident ? lifetime.first_use : lifetime.first;
    lifetime.order = 0;
  }
}

// Returns live bytes by position. `of` returns the interval in which a lifetime is live.
template <class Interval>
std::vector<Bytes> live_bytes(const Draft& draft, const BucketLayout& layout, Interval&& of) {
  // Bytes that begin less bytes that end, by position; unsigned, so they wrap around.
  std::vector<Bytes> live(draft.sequence.size() + 1, 0);
  for (const DraftLifetime& lifetime : draft.lifetimes) {
    const auto [first, last] = of(lifetime);
    live[static_cast<std::size_t>(first)] += layout.buckets[lifetime.bucket].bytes;
    live[static_cast<std::size_t>(last)] -= layout.buckets[lifetime.bucket].bytes;
  }
  for (std::size_t p = 1; p < live.size(); ++p) live[p] += live[p - 1];
  return live;
}
std::pair<Position, Position> scheduled(const DraftLifetime& lifetime) {
  return {lifetime.first, lifetime.last};
}

template <class Predicate, class Key>
std::vector<LifetimeId> ordered(const Draft& draft, Predicate&& wanted, Key&& key) {
  std::vector<LifetimeId> ids;
  for (LifetimeId id = 0; id < draft.lifetimes.size(); ++id)
    if (wanted(draft.lifetimes[id])) ids.push_back(id);
  std::stable_sort(ids.begin(), ids.end(), [&](LifetimeId a, LifetimeId b) {
    return key(draft.lifetimes[a]) < key(draft.lifetimes[b]);
  });
  return ids;
}

// Removes the lifetimes that have become part of another lifetime. `target`: by lifetime, the lifetime that
// it has become part of, or itself.
void remap(Draft& draft, const std::vector<LifetimeId>& target) {
  std::vector<LifetimeId> place(target.size(), no_id);
  std::vector<DraftLifetime> kept;
  for (LifetimeId id = 0; id < target.size(); ++id)
    if (target[id] == id) {
      place[id] = static_cast<LifetimeId>(kept.size());
      kept.push_back(draft.lifetimes[id]);
    }
  draft.lifetimes = std::move(kept);
  for (LifetimeId& id : draft.uses.all()) id = place[target[id]];
}

// Joins lifetimes that touch. Returns true if it joined a pair: the links' queues are then shorter, so the
// caller makes the schedule anew.
bool join_touching(Draft& draft) {
  std::vector<LifetimeId> order = ordered(
      draft, [](const DraftLifetime& l) { return !l.copy; },
      [](const DraftLifetime& l) { return std::pair(l.bucket, l.first_use); });
  std::vector<LifetimeId> target(draft.lifetimes.size());
  std::iota(target.begin(), target.end(), 0U);
  bool joined = false;
  for (std::size_t i = 1; i < order.size(); ++i) {
    DraftLifetime& later = draft.lifetimes[order[i]];
    LifetimeId into = target[order[i - 1]];
    DraftLifetime& earlier = draft.lifetimes[into];
    if (earlier.bucket != later.bucket || !later.prefetched || later.first > earlier.last) continue;
    // The host still needs the value if it is brought in once more.
    const bool again = i + 1 < order.size() && draft.lifetimes[order[i + 1]].bucket == earlier.bucket &&
                       draft.lifetimes[order[i + 1]].prefetched;
    earlier.last_use = later.last_use;
    earlier.last_before_update = later.last_before_update;
    earlier.offloaded = later.offloaded || (earlier.offloaded && again);
    target[order[i]] = into;
    joined = true;
  }
  if (joined) remap(draft, target);
  return joined;
}

// One walk through the step, which schedules all transfers.
class Walk {
 public:
  Walk(Draft& draft, const Durations& durations, const BucketLayout& layout, const Reach& reach)
      : draft_(draft),
        durations_(durations),
        layout_(layout),
        cap_(reach.cap),
        distance_(reach.distance),
        live_(live_bytes(draft, layout, scheduled)) {
    // Among the prefetches for one op, the one whose value the host has first goes first.
    prefetches_ = ordered(
        draft, [](const DraftLifetime& l) { return l.prefetched && !l.whole_step; },
        [&](const DraftLifetime& l) { return std::pair(l.first_use, durations.ready[l.bucket]); });
    offloads_ = ordered(
        draft, [](const DraftLifetime& l) { return l.offloaded; },
        [](const DraftLifetime& l) { return l.last_before_update; });
    find_latest_claims();
    ready_.assign(draft.lifetimes.size(), 0);
    bucket_left_.assign(layout.buckets.size(), 0);
  }

  void run() {
    const auto positions = static_cast<Position>(draft_.sequence.size());
    for (Position p = 0; p < positions; ++p) {
      free_left(p);
      while (next_prefetch_ < prefetches_.size() && at(prefetches_[next_prefetch_]).first_use == p)
        prefetch(p);
      if (is_peer(p))
        exchange(p);
      else
        compute(p);
      while (next_offload_ < offloads_.size() && at(offloads_[next_offload_]).last_before_update == p)
        offload(p);
    }
    for (const Queue& queue : leaving_)
      for (const Leaving& leaving : queue) end_at(leaving.id, positions);
  }

 private:
  struct Leaving {
    LifetimeId id = no_id;
    double end = 0;
  };
  DraftLifetime& at(LifetimeId id) { return draft_.lifetimes[id]; }
  Bytes bytes_of(LifetimeId id) const { return layout_.buckets[draft_.lifetimes[id].bucket].bytes; }
  // Returns the bytes that become free when the lifetime's offload ends.
  Bytes leaving_bytes_of(LifetimeId id) const { return leaves(draft_.lifetimes[id]) ? bytes_of(id) : 0; }
  using Queue = std::deque<Leaving>;
  static constexpr std::size_t offload_queue = 0, peer_queue = 1;
  Queue* first_to_end() {
    Queue* first = nullptr;
    for (Queue& queue : leaving_)
      if (!queue.empty() && (first == nullptr || queue.front().end < first->front().end)) first = &queue;
    return first;
  }
  void end_at(LifetimeId id, Position p) {
    if (leaves(at(id))) at(id).last = p;
  }

  bool is_peer(Position p) const {
    return layout_.has_peers &&
           layout_.lanes[draft_.sequence[static_cast<std::size_t>(p)].op] == LaneRole::peer;
  }
  double seconds_of(Position p) const { return durations_.sequence[static_cast<std::size_t>(p)]; }

  // Sets latest_ and latest_of_op_, for a step without stalls. Takes the latest start with which a prefetch
  // and all prefetches behind it are in time, and goes one transfer's time further back. Does the same for
  // the ops of the peer lane, with the time of the op.
  void find_latest_claims() {
    std::vector<double> starts{0};
    for (Position p = 0; p < static_cast<Position>(draft_.sequence.size()); ++p)
      starts.push_back(starts.back() + (is_peer(p) ? 0 : seconds_of(p)));
    const auto position_at = [&](double time, Position most) {
      const auto after = std::upper_bound(starts.begin(), starts.end(), std::max(0.0, time));
      return std::min<Position>(after - starts.begin() - 1, most);
    };
    const std::vector<double> due = layout_.has_peers ? latest_starts(starts) : starts;
    for (Position p = 0; layout_.has_peers && p < static_cast<Position>(draft_.sequence.size()); ++p)
      latest_of_op_.push_back(position_at(due[static_cast<std::size_t>(p)] - seconds_of(p), p));
    latest_.resize(prefetches_.size());
    double next = starts.back();
    for (std::size_t i = prefetches_.size(); i-- > 0;) {
      const DraftLifetime& lifetime = at(prefetches_[i]);
      const double seconds = durations_.h2d[lifetime.bucket];
      next = std::min(due[static_cast<std::size_t>(lifetime.first_use)] - seconds, next) - seconds;
      latest_[i] = position_at(next, lifetime.first_use);
    }
  }
  // Returns by position the latest start with which everything that uses the op's results is in time.
  // `starts`: when the compute lane's ops start. On the peer lane each op ends before the next one starts.
  std::vector<double> latest_starts(const std::vector<double>& starts) const {
    std::vector<double> due(starts);
    // Latest time at which the lifetime must be ready.
    std::vector<double> needed(draft_.lifetimes.size(), starts.back());
    double next = starts.back();
    for (std::size_t p = draft_.sequence.size(); p-- > 0;) {
      const auto position = static_cast<Position>(p);
      const std::span<const LifetimeId> uses = draft_.uses.at(position);
      if (is_peer(position)) {
        for (const LifetimeId use : uses) next = std::min(next, needed[use]);
        due[p] = next -= seconds_of(position);
      }
      for (const LifetimeId use : uses) needed[use] = due[p];
    }
    return due;
  }

  void compute(Position p) {
    if (!layout_.has_peers) {
      starts_.push_back(now_);
      now_ += seconds_of(p);
      return;
    }
    for (const LifetimeId use : draft_.uses.at(p)) now_ = std::max(now_, ready_[use]);
    starts_.push_back(now_);
    now_ += seconds_of(p);
    for (const LifetimeId use : draft_.uses.at(p)) used(use, now_);
  }
  void used(LifetimeId id, double end) {
    ready_[id] = end;
    Position& left = bucket_left_[at(id).bucket];
    left = std::max(left, at(id).last_use + 1);
  }

  // An op of the peer lane starts as soon as the lane, its operands, and bytes for its results allow. If the
  // op ends behind its position, the lifetimes that end with it do, too.
  void exchange(Position p) {
    const std::span<const LifetimeId> uses = draft_.uses.at(p);
    double start = peer_free_;
    for (const LifetimeId use : uses) start = std::max(start, ready_[use]);
    const Position claim = claim_results(p, start);
    start = std::max(start, claim < p ? starts_[static_cast<std::size_t>(claim)] : now_);
    starts_.push_back(now_);
    peer_free_ = start + seconds_of(p);
    for (const LifetimeId use : uses) {
      used(use, peer_free_);
      const DraftLifetime& lifetime = at(use);
      if (lifetime.last_use == p && !lifetime.offloaded && !lifetime.resident && !lifetime.whole_step)
        leave(peer_queue, use, peer_free_ + seconds_of(p));
    }
  }
  // Begins the lifetimes of the results of the op at `p`, and returns the position at which they begin.
  // `ready`: the time at which the op's lane and its operands are ready.
  Position claim_results(Position p, double ready) {
    std::vector<LifetimeId> begun;
    Bytes bytes = 0;
    Position earliest = std::max(latest_of_op_[static_cast<std::size_t>(p)], started_at(ready));
    for (const LifetimeId use : draft_.uses.at(p)) {
      const DraftLifetime& lifetime = at(use);
      if (lifetime.first_use != p || lifetime.prefetched || lifetime.resident || lifetime.whole_step)
        continue;
      begun.push_back(use);
      bytes += bytes_of(use);
      earliest = std::max(earliest, bucket_left_[lifetime.bucket]);
    }
    const Position claim = std::min(p, std::max(earliest, first_with_room(p, bytes)));
    for (const LifetimeId id : begun) at(id).first = at(id).load = claim;
    live_.add(claim, p, bytes);
    return claim;
  }

  // Frees bytes for position `p`: those of lifetimes whose offload, or last op on the peer lane, has ended.
  // While the op at `p` still has no room, or more than `distance_` offloads are under way, it stalls until
  // the next one ends.
  void free_left(Position p) {
    const Bytes needed = live_.at(p);
    const Bytes room = needed < cap_ ? cap_ - needed : 0;
    while (leaving_[offload_queue].size() > distance_) leave_at(p, leaving_[offload_queue]);
    for (Queue* first = first_to_end(); first != nullptr; first = first_to_end()) {
      if (first->front().end > now_ && leaving_bytes_ <= room) break;
      leave_at(p, *first);
    }
    live_.add(p, p + 1, leaving_bytes_);
  }
  void leave_at(Position p, Queue& queue) {
    now_ = std::max(now_, queue.front().end);
    end_at(queue.front().id, p);
    leaving_bytes_ -= leaving_bytes_of(queue.front().id);
    queue.pop_front();
  }
  void leave(std::size_t queue, LifetimeId id, double end) {
    leaving_.at(queue).push_back({id, end});
    leaving_bytes_ += leaving_bytes_of(id);
  }

  void prefetch(Position p) {
    const LifetimeId id = prefetches_[next_prefetch_];
    const Bytes bytes = at(id).resident ? 0 : bytes_of(id);
    const double free = std::max(link_free_, durations_.ready[at(id).bucket]);
    claimed_ = std::max({claimed_, latest_[next_prefetch_], started_at(free), first_with_room(p, bytes)});
    if (next_prefetch_ >= distance_)
      claimed_ = std::max(claimed_, at(prefetches_[next_prefetch_ - distance_]).first_use);
    if (p >= draft_.backward_end) claimed_ = std::max(claimed_, draft_.backward_end);
    const Position claim = std::min(claimed_, p);
    at(id).load = claim;
    if (!at(id).resident) at(id).first = claim;
    at(id).order = static_cast<Position>(next_prefetch_);
    live_.add(claim, p, bytes);
    link_free_ = std::max(free, claim < p ? starts_[static_cast<std::size_t>(claim)] : now_) +
                 durations_.h2d[at(id).bucket];
    ready_[id] = link_free_;
    if (!is_peer(p)) now_ = std::max(now_, link_free_);
    ++next_prefetch_;
  }
  // Returns the last position that has started by `time`; the next position if `time` is not before now.
  Position started_at(double time) const {
    if (time >= now_) return static_cast<Position>(starts_.size());
    return std::max<Position>(0,
                              std::upper_bound(starts_.begin(), starts_.end(), time) - starts_.begin() - 1);
  }
  Position first_with_room(Position p, Bytes bytes) const {
    if (cap_ == unlimited || bytes == 0) return 0;
    return bytes > cap_ ? p : live_.last_above(0, p, cap_ - bytes) + 1;
  }

  void offload(Position p) {
    const LifetimeId id = offloads_[next_offload_++];
    const double seconds = durations_.d2h[at(id).bucket];
    offload_free_ = std::max(offload_free_, is_peer(p) ? ready_[id] : now_) + seconds;
    leave(offload_queue, id, offload_free_ + seconds);
  }

  Draft& draft_;
  const Durations& durations_;
  const BucketLayout& layout_;
  Bytes cap_;
  std::size_t distance_;
  LiveBytes live_;
  std::vector<LifetimeId> prefetches_, offloads_;
  std::size_t next_prefetch_ = 0, next_offload_ = 0;
  std::vector<Position> latest_;  // latest start of each prefetch
  std::vector<double> starts_;    // start of each position so far
  double now_ = 0, link_free_ = 0, offload_free_ = 0;
  Position claimed_ = 0;  // position of the last prefetch; the link works in order of need
  std::array<Queue, 2> leaving_;
  Bytes leaving_bytes_ = 0;
  // The four members below serve the peer lane.
  std::vector<double> ready_;  // by lifetime: time at which its prefetch, or its last use so far, ends
  double peer_free_ = 0;
  std::vector<Position> latest_of_op_;  // latest start of the op at each position
  std::vector<Position> bucket_left_;   // by bucket: the end of its uses so far
};

}  // namespace

Bytes scheduled_peak_bytes(const Draft& draft, const BucketLayout& layout) {
  const std::vector<Bytes> live = live_bytes(draft, layout, scheduled);
  return *std::max_element(live.begin(), live.end());
}
Bytes serial_peak_bytes(const Draft& draft, const BucketLayout& layout) {
  const std::vector<Bytes> live =
      live_bytes(draft, layout, [&](const DraftLifetime& lifetime) { return in_use(draft, lifetime); });
  return *std::max_element(live.begin(), live.end());
}

Draft schedule_serially(Draft draft) {
  do {
    set_uses(draft);
  } while (join_touching(draft));
  return draft;
}

Draft schedule_within(Draft draft, const Durations& durations, const BucketLayout& layout,
                      const Reach& reach) {
  do {
    set_uses(draft);
    Walk(draft, durations, layout, reach).run();
  } while (join_touching(draft));
  return draft;
}

}  // namespace stowage
