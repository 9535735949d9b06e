#include "offload/plan/limited_schedule.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "offload/plan/changes.h"
#include "offload/plan/packing.h"

namespace stowage {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr double rounding_hair = 1e-9;
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

std::vector<PackingItem> items_of(const Problem& problem, const Draft& draft) {
  std::vector<PackingItem> items;
  for (const DraftLifetime& lifetime : draft.lifetimes)
    items.push_back({lifetime.span_first, lifetime.span_last, lifetime.span_wrap,
                     problem.layout.buckets[lifetime.bucket].bytes});
  return items;
}

// An offload that was put off may end up behind what waits for its bytes.
bool waits_for_later(const Plan& plan) {
  for (InstructionId id = 0; id < plan.instructions.size(); ++id)
    for (const Wait& wait : plan.instructions[id].waits)
      if (wait.steps_back == 0 && wait.instruction > id) return true;
  return false;
}

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
  std::vector<LimitedSketch> sketches;
  for (FoundOrder& found : search_orders(rates_, *period, limit, cutoff, effort)) {
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

// The sketch's times, with loads as soon as they may start, or as late.
std::vector<Draft> LimitedScheduler::drafts_of(const LimitedSketch& sketch) const {
  return {timed_draft(rates_, *sketch.period, sketch.times, 0),
          timed_draft(rates_, *sketch.period, sketch.times, ~std::uint64_t{0})};
}
// Those with some loads early and some late; and those of other orders that take as long, first of all
// without joined loads: of two lifetimes each has its own place.
std::vector<Draft> LimitedScheduler::more_drafts_of(const LimitedSketch& sketch) const {
  constexpr std::uint64_t some[] = {0x5555555555555555U, 0xaaaaaaaaaaaaaaaaU, 0x3333333333333333U,
                                    0xccccccccccccccccU};
  constexpr OrderEffort efforts[] = {{.width = 48, .most_found = 4, .may_join = false},
                                     {.width = 48, .most_found = 4}};
  std::vector<Draft> drafts;
  for (const OrderEffort& effort : efforts)
    for (const LimitedSketch& other :
         search(sketch.period, sketch.limit, sketch.seconds * (1 + rounding_hair), effort))
      for (Draft& draft : drafts_of(other)) drafts.push_back(std::move(draft));
  for (std::uint64_t late : some) drafts.push_back(timed_draft(rates_, *sketch.period, sketch.times, late));
  return drafts;
}

// Of other choices, one change away, that take as long: what is sent away and brought back gets another
// place.
std::vector<Draft> LimitedScheduler::changed_drafts_of(const LimitedSketch& sketch) const {
  constexpr OrderEffort effort{.width = 8, .most_found = 1, .may_join = false};
  std::vector<Draft> drafts;
  for (const Change& change : all_changes(problem_)) {
    Choices choices = sketch.choices();
    apply(problem_, change, choices);
    if (choices == sketch.choices()) continue;
    for (const LimitedSketch& other :
         search(period(choices), sketch.limit, sketch.seconds * (1 + rounding_hair), effort))
      for (Draft& draft : drafts_of(other)) drafts.push_back(std::move(draft));
  }
  return drafts;
}

void LimitedScheduler::complete_each(const LimitedSketch& sketch,
                                     const std::function<void(Plan)>& offer) const {
  constexpr std::size_t most_packed = 100, most_varied = 50, most_varied_ops = 20, most_work = 50'000;
  const std::size_t lifetimes = sketch.times.begin.size();
  // Nothing faster than the sketch says: who reads that need not ask for its plans.
  auto offer_within_limit = [&](Plan plan) {
    if (plan.device_peak_bytes > sketch.limit || waits_for_later(plan)) return;
    if (plan.predicted_step_seconds < sketch.seconds * (1 - rounding_hair)) return;
    offer(std::move(plan));
  };
  std::vector<Draft> drafts = drafts_of(sketch);
  offer_within_limit(complete(problem_, drafts.front()));
  if (lifetimes > most_packed) return;
  const std::size_t most_nodes = most_work / (lifetimes + 1);
  auto completes = [&](std::size_t first, Bytes aim, std::size_t nodes) {
    for (std::size_t i = first; i < drafts.size(); ++i)
      if (auto offsets = pack(items_of(problem_, drafts[i]), aim, placement_alignment, nodes)) {
        offer_within_limit(complete_at(problem_, drafts[i], *offsets));
        return true;
      }
    return false;
  };
  const Bytes limit = std::min(sketch.limit, 2 * sketch.peak);
  const Bytes least = std::min(sketch.peak, limit);
  const Bytes slack = placement_alignment - 8;  // what rounding may leave of the topmost item's last unit
  if (completes(0, least - std::min(slack, least), most_nodes) || completes(0, least, most_nodes)) return;
  if (lifetimes <= most_varied) {
    std::vector<Draft> more = more_drafts_of(sketch);
    std::move(more.begin(), more.end(), std::back_inserter(drafts));
    if (completes(0, least, 4 * most_nodes)) return;
    if (problem_.graph->ops.size() <= most_varied_ops) {
      const std::size_t first = drafts.size();
      more = changed_drafts_of(sketch);
      std::move(more.begin(), more.end(), std::back_inserter(drafts));
      if (completes(first, least, most_nodes / 4)) return;
    }
  }
  for (Bytes part : {16U, 8U, 4U, 2U, 1U})
    if (completes(0, least + (limit - least) / part, most_nodes / 2)) return;
}

}  // namespace stowage
