#include "offload/plan/limited_schedule.h"

#include <algorithm>
#include <limits>

#include "offload/plan/packing.h"
#include "src/graph/cost.h"

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

struct Rates {
  const std::vector<double>& op;
  const std::vector<double>& h2d;
  const std::vector<double>& d2h;
  const std::vector<Bytes>& bytes;
  const std::vector<double>& host_update;
  double gate = 0;
};

class Period {
 public:
  Period(const Problem& problem, const Rates& rates, Draft draft, Bytes limit, double cutoff)
      : problem_(problem),
        rates_(rates),
        draft_(std::move(draft)),
        live_(align_up(std::min(limit, most_limit), placement_alignment)),
        cutoff_(cutoff - rates.gate),
        ends_(draft_.sequence.size(), 0),
        begin_(draft_.lifetimes.size(), 0),
        end_(draft_.lifetimes.size(), 0),
        joined_(draft_.lifetimes.size(), no_id),
        ready_(problem.layout.buckets.size(), 0),
        last_of_(problem.layout.buckets.size(), no_id) {}

  std::optional<LimitedSketch> run(bool late) {
    list();
    update_host();
    for (const SequenceStep& step : draft_.sequence) left_ += rates_.op[step.op];
    take_what_crosses_the_gate();
    for (std::size_t p = updates(); p < draft_.sequence.size(); ++p)
      if (!play(p)) return std::nullopt;
    for (std::size_t p = 0; p < updates(); ++p)
      if (!play(p)) return std::nullopt;
    LimitedSketch sketch;
    sketch.peak = live_.peak();
    sketch.seconds = std::max({now_, d2h_free_, host_end_}) + rates_.gate;
    if (late) put_off();
    set_intervals();
    drop_joined();
    sketch.draft = std::move(draft_);
    return sketch;
  }

 private:
  std::size_t updates() const { return static_cast<std::size_t>(draft_.backward_end); }
  DraftLifetime& at(LifetimeId id) { return draft_.lifetimes[id]; }
  std::int64_t bytes(LifetimeId id) const {
    return static_cast<std::int64_t>(rates_.bytes[draft_.lifetimes[id].bucket]);
  }
  // Made before the gate, read by an update behind it.
  bool crosses(const DraftLifetime& lifetime) const {
    return !lifetime.resident && lifetime.first_use < draft_.backward_end &&
           lifetime.last_use >= draft_.backward_end;
  }

  void list() {
    firsts_.resize(draft_.sequence.size());
    lasts_.resize(draft_.sequence.size());
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) {
      if (at(id).resident) continue;
      firsts_[static_cast<std::size_t>(at(id).first_use)].push_back(id);
      lasts_[static_cast<std::size_t>(at(id).last_use)].push_back(id);
    }
  }
  void update_host() {
    std::vector<std::uint8_t> resident(problem_.layout.buckets.size(), 0);
    for (const DraftLifetime& lifetime : draft_.lifetimes)
      if (lifetime.resident) resident[lifetime.bucket] = 1;
    for (BucketId id : problem_.layout.parameters)
      if (!resident[id]) ready_[id] = host_end_ += rates_.host_update[id];
  }
  void take_what_crosses_the_gate() {
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id)
      if (at(id).resident || crosses(at(id))) live_.change(0, bytes(id));
  }

  bool play(std::size_t p) {
    double begin = now_;
    std::vector<LifetimeId> loads;
    std::int64_t written = 0;
    for (LifetimeId id : firsts_[p])
      if (at(id).prefetched)
        loads.push_back(id);
      else
        written += bytes(id);
    std::stable_sort(loads.begin(), loads.end(),
                     [&](LifetimeId a, LifetimeId b) { return ready_[at(a).bucket] < ready_[at(b).bucket]; });
    for (LifetimeId id : loads) {
      if (!load(id)) return false;
      begin = std::max(begin, arrival_);
    }
    begin = live_.room_from(begin, written);
    if (begin == never) return false;
    now_ = ends_[p] = begin + rates_.op[draft_.sequence[p].op];
    for (LifetimeId id : firsts_[p])
      if (!at(id).prefetched) take(id, begin);
    for (LifetimeId id : lasts_[p]) release(id);
    left_ -= rates_.op[draft_.sequence[p].op];
    return std::max({now_ + left_, d2h_free_, host_end_}) < cutoff_;
  }
  void take(LifetimeId id, double time) {
    begin_[id] = time;
    live_.change(time, bytes(id));
  }
  // Its prefetch; or, where that could start while the bytes of the load before are still there, none.
  bool load(LifetimeId id) {
    const BucketId bucket = at(id).bucket;
    const LifetimeId before = last_of_[bucket];
    last_of_[bucket] = id;
    const double start = live_.room_from(std::max(h2d_free_, ready_[bucket]), bytes(id));
    if (start == never) return false;
    if (before != no_id && !at(before).offloaded && start <= end_[before]) {
      joined_[id] = before;
      begin_[id] = end_[before];
      live_.change(end_[before], bytes(id));
      arrival_ = 0;
      return true;
    }
    take(id, start);
    loads_.push_back(id);
    at(id).order = static_cast<Position>(loads_.size());
    arrival_ = h2d_free_ = start + rates_.h2d[bucket];
    return true;
  }
  void release(LifetimeId id) {
    end_[id] = now_;
    if (at(id).offloaded) {
      const BucketId bucket = at(id).bucket;
      end_[id] = d2h_free_ = std::max(d2h_free_, now_) + rates_.d2h[bucket];
      ready_[bucket] = std::max(ready_[bucket], d2h_free_);
    }
    live_.change(end_[id], -bytes(id));
  }

  // Prefetches as late as their uses and those behind them on the link allow.
  void put_off() {
    double link = never;
    for (auto id = loads_.rbegin(); id != loads_.rend(); ++id) {
      const auto use = static_cast<std::size_t>(at(*id).first_use);
      const double deadline = std::min(link, ends_[use] - rates_.op[draft_.sequence[use].op]);
      link = begin_[*id] = std::max(begin_[*id], deadline - rates_.h2d[at(*id).bucket]);
    }
  }

  // Positions for the plan, and spans of time, as ranks of moments, for placement.
  void set_intervals() {
    std::vector<double> moments(begin_);
    moments.insert(moments.end(), end_.begin(), end_.end());
    std::sort(moments.begin(), moments.end());
    const double tolerance = 1e-9 * (now_ + d2h_free_);
    moments.erase(
        std::unique(moments.begin(), moments.end(), [&](double a, double b) { return b - a <= tolerance; }),
        moments.end());
    auto rank = [&](double time) {
      return static_cast<Position>(std::lower_bound(moments.begin(), moments.end(), time - tolerance) -
                                   moments.begin());
    };
    const auto latest = static_cast<Position>(moments.size()) + 1;
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) {
      DraftLifetime& lifetime = at(id);
      lifetime.first = lifetime.resident     ? 0
                       : lifetime.prefetched ? claim_of(id, tolerance)
                                             : lifetime.first_use;
      lifetime.last = lifetime.resident ? static_cast<Position>(ends_.size()) : lifetime.last_use + 1;
      lifetime.span_first = lifetime.resident ? 0 : rank(begin_[id]);
      lifetime.span_last =
          lifetime.resident || crosses(lifetime) ? latest : std::max(lifetime.span_first + 1, rank(end_[id]));
      if (crosses(lifetime)) lifetime.span_wrap = rank(end_[id]);
    }
    draft_.has_spans = true;
  }
  // The position whose op runs, or is next, when the prefetch begins.
  Position claim_of(LifetimeId id, double tolerance) const {
    const DraftLifetime& lifetime = draft_.lifetimes[id];
    const Position from = lifetime.first_use < draft_.backward_end ? 0 : draft_.backward_end;
    Position low = from, high = lifetime.first_use;
    while (low < high) {
      const Position middle = low + (high - low) / 2;
      if (ends_[static_cast<std::size_t>(middle)] <= begin_[id] + tolerance)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  void drop_joined() {
    std::vector<LifetimeId> place(draft_.lifetimes.size(), no_id);
    std::vector<DraftLifetime> kept;
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) {
      if (joined_[id] == no_id) {
        place[id] = static_cast<LifetimeId>(kept.size());
        kept.push_back(at(id));
        continue;
      }
      place[id] = place[joined_[id]];
      DraftLifetime& into = kept[place[id]];
      into.last_use = at(id).last_use;
      into.last = at(id).last;
      into.span_last = at(id).span_last;
      into.offloaded = at(id).offloaded;
    }
    draft_.lifetimes = std::move(kept);
    for (auto& uses : draft_.uses)
      for (LifetimeId& id : uses) id = place[id];
  }

  const Problem& problem_;
  const Rates& rates_;
  Draft draft_;
  BytesOverTime live_;
  double cutoff_ = 0;                                    // of the gate
  double left_ = 0;                                      // work left on the compute lane
  std::vector<std::vector<LifetimeId>> firsts_, lasts_;  // by position
  std::vector<double> ends_;                             // by position
  std::vector<double> begin_, end_;                      // by lifetime: its bytes
  std::vector<LifetimeId> joined_;   // by lifetime: the one before, whose bytes it goes on with
  std::vector<LifetimeId> loads_;    // in the link's order
  std::vector<double> ready_;        // by bucket: the host's copy
  std::vector<LifetimeId> last_of_;  // by bucket: the last loaded
  double now_ = 0, h2d_free_ = 0, d2h_free_ = 0, host_end_ = 0;
  double arrival_ = 0;  // of the last load
};

std::vector<PackingItem> items_of(const Problem& problem, const Draft& draft) {
  std::vector<PackingItem> items;
  for (const DraftLifetime& lifetime : draft.lifetimes)
    items.push_back({lifetime.span_first, lifetime.span_last, lifetime.span_wrap,
                     problem.layout.buckets[lifetime.bucket].bytes});
  return items;
}

}  // namespace

LimitedScheduler::LimitedScheduler(const Problem& problem) : problem_(problem) {
  const Graph& graph = *problem.graph;
  host_update_.assign(problem.layout.buckets.size(), 0);
  for (const Op& op : graph.ops) {
    op_seconds_.push_back(op_seconds(op, *problem.machine));
    if (op.phase != Phase::update) continue;
    for (TensorId id : op.writes) {
      if (id == graph.clip) gate_seconds_ = host_seconds(op, *problem.machine);
      if (graph.tensor(id).kind == TensorKind::parameter)
        host_update_[problem.layout.bucket_of[id]] += host_seconds(op, *problem.machine);
    }
  }
  for (const Bucket& bucket : problem.layout.buckets) {
    h2d_.push_back(problem.machine->h2d.seconds(bucket.bytes));
    d2h_.push_back(problem.machine->d2h.seconds(bucket.bytes));
    bytes_.push_back(align_up(bucket.bytes, placement_alignment));
  }
}

std::optional<LimitedSketch> LimitedScheduler::run(const Choices& choices, Bytes limit, double cutoff,
                                                   bool late) const {
  const Rates rates{op_seconds_, h2d_, d2h_, bytes_, host_update_, gate_seconds_};
  Draft draft = make_lifetimes(*problem_.graph, problem_.analysis, problem_.layout, choices);
  std::optional<LimitedSketch> sketch = Period(problem_, rates, std::move(draft), limit, cutoff).run(late);
  if (sketch) sketch->choices = choices;
  if (sketch) sketch->limit = limit;
  return sketch;
}
std::optional<LimitedSketch> LimitedScheduler::run(const Choices& choices, Bytes limit, double cutoff) const {
  return run(choices, limit, cutoff, false);
}

void LimitedScheduler::complete_each(const LimitedSketch& sketch,
                                     const std::function<void(Plan)>& offer) const {
  constexpr std::size_t most_packed = 100, most_work = 50'000;
  const std::size_t most_nodes = most_work / (sketch.draft.lifetimes.size() + 1);
  const Bytes slack = placement_alignment - 8;  // what rounding may leave of the topmost item's last unit
  const Bytes limit = std::min(sketch.limit, 2 * sketch.peak);
  const Bytes more = limit - sketch.peak;
  auto offer_within_limit = [&](Plan plan) {
    if (plan.device_peak_bytes <= sketch.limit) offer(std::move(plan));
  };
  offer_within_limit(complete(problem_, sketch.draft));
  if (sketch.draft.lifetimes.size() > most_packed) return;
  const LimitedSketch late = *run(sketch.choices, sketch.limit, never, true);
  for (Bytes aim : {sketch.peak - std::min(slack, sketch.peak), sketch.peak, sketch.peak + more / 8,
                    sketch.peak + more / 2, limit})
    for (const Draft* draft : {&sketch.draft, &late.draft})
      if (auto offsets = pack(items_of(problem_, *draft), aim, placement_alignment, most_nodes)) {
        offer_within_limit(complete_at(problem_, *draft, *offsets));
        return;
      }
}

}  // namespace stowage
