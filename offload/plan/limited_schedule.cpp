#include "offload/plan/limited_schedule.h"

#include <algorithm>
#include <limits>

namespace stowage {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr Bytes most_limit = Bytes{1} << 62U;
const Bytes placement_alignment = Plan{}.alignment;

// How many bytes are taken, over time.
class BytesOverTime {
 public:
  explicit BytesOverTime(Bytes limit) : limit_(static_cast<std::int64_t>(limit)) {}
  void change(double time, std::int64_t bytes) {
    auto at = std::upper_bound(events_.begin(), events_.end(), time,
                               [](double t, const Event& event) { return t < event.time; });
    events_.insert(at, {time, bytes});
    end_ += bytes;
  }
  // The first moment from `time` on with room for `bytes` more for good.
  double room_from(double time, std::int64_t bytes) const {
    std::int64_t live = end_;
    if (live + bytes > limit_) return never;
    for (auto event = events_.rbegin(); event != events_.rend() && event->time > time; ++event) {
      live -= event->bytes;
      if (live + bytes > limit_) return event->time;
    }
    return time;
  }
  Bytes peak() const {
    std::int64_t live = 0, most = 0;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      live += events_[i].bytes;
      if (i + 1 == events_.size() || events_[i + 1].time > events_[i].time) most = std::max(most, live);
    }
    return static_cast<Bytes>(most);
  }

 private:
  struct Event {
    double time = 0;
    std::int64_t bytes = 0;
  };
  std::int64_t limit_;
  std::int64_t end_ = 0;       // behind all events
  std::vector<Event> events_;  // by time
};

class LimitedWalk {
 public:
  LimitedWalk(const PeriodRates& rates, const Period& period, Bytes limit, double cutoff)
      : rates_(rates),
        period_(period),
        live_(align_up(std::min(limit, most_limit), placement_alignment)),
        cutoff_(cutoff - rates.gate),
        left_(period.compute_seconds),
        host_end_(period.host_end),
        ready_(period.ready) {
    times_.ends.resize(period.seconds.size());
    times_.begin.resize(period.bytes.size());
    times_.end.resize(period.bytes.size());
    times_.joined.assign(period.bytes.size(), no_id);
  }

  std::optional<LimitedSketch> run() {
    live_.change(0, static_cast<std::int64_t>(period_.live_at_gate));
    for (Position p : period_.order)
      if (!play(static_cast<std::size_t>(p))) return std::nullopt;
    LimitedSketch sketch;
    sketch.peak = live_.peak();
    sketch.seconds = std::max({now_, d2h_free_, host_end_}) + rates_.gate;
    times_.last = now_ + d2h_free_;
    sketch.times = std::move(times_);
    return sketch;
  }

 private:
  const DraftLifetime& at(LifetimeId id) const { return period_.draft.lifetimes[id]; }
  std::int64_t bytes(LifetimeId id) const { return static_cast<std::int64_t>(period_.bytes[id]); }

  bool play(std::size_t p) {
    double begin = now_;
    loads_.clear();
    std::int64_t written = 0;
    for (LifetimeId id : period_.firsts[p])
      if (at(id).prefetched)
        loads_.push_back(id);
      else
        written += bytes(id);
    std::stable_sort(loads_.begin(), loads_.end(),
                     [&](LifetimeId a, LifetimeId b) { return ready_[at(a).bucket] < ready_[at(b).bucket]; });
    for (LifetimeId id : loads_) {
      if (!load(id)) return false;
      begin = std::max(begin, arrival_);
    }
    begin = live_.room_from(begin, written);
    if (begin == never) return false;
    now_ = times_.ends[p] = begin + period_.seconds[p];
    for (LifetimeId id : period_.firsts[p])
      if (!at(id).prefetched) take(id, begin);
    for (LifetimeId id : period_.lasts[p]) release(id);
    left_ -= period_.seconds[p];
    return std::max({now_ + left_, d2h_free_, host_end_}) < cutoff_;
  }
  void take(LifetimeId id, double time) {
    times_.begin[id] = time;
    live_.change(time, bytes(id));
  }
  // Its prefetch; or, where that could start while the bytes of the load before are still there, none.
  bool load(LifetimeId id) {
    const BucketId bucket = at(id).bucket;
    const LifetimeId before = period_.before[id];
    const double start = live_.room_from(std::max(h2d_free_, ready_[bucket]), bytes(id));
    if (start == never) return false;
    if (before != no_id && !at(before).offloaded && start <= times_.end[before]) {
      times_.joined[id] = before;
      times_.begin[id] = times_.end[before];
      live_.change(times_.end[before], bytes(id));
      arrival_ = 0;
      return true;
    }
    take(id, start);
    times_.loads.push_back(id);
    arrival_ = h2d_free_ = start + rates_.h2d[bucket];
    return true;
  }
  void release(LifetimeId id) {
    times_.end[id] = now_;
    if (at(id).offloaded) {
      const BucketId bucket = at(id).bucket;
      times_.end[id] = d2h_free_ = std::max(d2h_free_, now_) + rates_.d2h[bucket];
      ready_[bucket] = std::max(ready_[bucket], d2h_free_);
    }
    live_.change(times_.end[id], -bytes(id));
  }

  const PeriodRates& rates_;
  const Period& period_;
  BytesOverTime live_;
  double cutoff_ = 0;  // of the gate
  double left_ = 0;    // work left on the compute lane
  double host_end_ = 0;
  std::vector<double> ready_;  // by bucket: the host's copy
  std::vector<LifetimeId> loads_;
  PeriodTimes times_;
  double now_ = 0, h2d_free_ = 0, d2h_free_ = 0;
  double arrival_ = 0;  // of the last load
};

}  // namespace

LimitedScheduler::LimitedScheduler(const Problem& problem) : problem_(problem), rates_(problem) {}

std::shared_ptr<const Period> LimitedScheduler::period(const Choices& choices) const {
  return std::make_shared<const Period>(make_period(problem_, rates_, choices));
}

std::optional<LimitedSketch> LimitedScheduler::run(std::shared_ptr<const Period> period, Bytes limit,
                                                   double cutoff) const {
  std::optional<LimitedSketch> sketch = LimitedWalk(rates_, *period, limit, cutoff).run();
  if (!sketch) return sketch;
  sketch->period = std::move(period);
  sketch->limit = limit;
  return sketch;
}
std::optional<LimitedSketch> LimitedScheduler::run(const Choices& choices, Bytes limit, double cutoff) const {
  return run(period(choices), limit, cutoff);
}

std::vector<LimitedSketch> LimitedScheduler::search(const std::shared_ptr<const Period>& period, Bytes limit,
                                                    double cutoff, const OrderEffort& effort) const {
  return sketches_of(period, limit, search_orders(rates_, *period, limit, cutoff, effort));
}
std::vector<LimitedSketch> LimitedScheduler::moved(const LimitedSketch& sketch, double cutoff) const {
  return sketches_of(sketch.period, sketch.limit,
                     moved_orders(rates_, *sketch.period, sketch.limit, cutoff, sketch.times));
}
std::vector<LimitedSketch> LimitedScheduler::sketches_of(const std::shared_ptr<const Period>& period,
                                                         Bytes limit, std::vector<FoundOrder> orders) {
  std::vector<LimitedSketch> sketches;
  for (FoundOrder& found : orders) {
    LimitedSketch sketch;
    sketch.period = period;
    sketch.limit = limit;
    sketch.seconds = found.seconds;
    sketch.peak = peak_of(*period, found.times);
    sketch.times = std::move(found.times);
    sketches.push_back(std::move(sketch));
  }
  return sketches;
}

}  // namespace stowage
