#include "offload/plan/period.h"

#include <algorithm>
#include <limits>

#include "src/graph/cost.h"

namespace stowage {
namespace {

class DraftTimer {
 public:
  DraftTimer(const PeriodRates& rates, const Period& period, const PeriodTimes& times)
      : rates_(rates), period_(period), times_(times), draft_(period.draft), begin_(times.begin) {}

  Draft run(std::uint64_t late) {
    for (std::size_t i = 0; i < times_.loads.size(); ++i)
      draft_.lifetimes[times_.loads[i]].order = static_cast<Position>(i + 1);
    put_off(late);
    for (const auto& [id, position] : times_.postponed) draft_.lifetimes[id].postponed_to = position;
    set_intervals();
    drop_joined();
    return std::move(draft_);
  }

 private:
  void put_off(std::uint64_t late) {
    double link = std::numeric_limits<double>::infinity();
    for (std::size_t i = times_.loads.size(); i-- > 0;) {
      const LifetimeId id = times_.loads[i];
      const auto use = static_cast<std::size_t>(draft_.lifetimes[id].first_use);
      const double deadline = std::min(link, times_.ends[use] - period_.seconds[use]);
      if ((late >> (i % 64) & 1U) != 0)
        begin_[id] = std::max(begin_[id], deadline - rates_.h2d[draft_.lifetimes[id].bucket]);
      link = begin_[id];
    }
  }

  // Positions for the plan, and spans of time, as ranks of moments, for placement.
  void set_intervals() {
    std::vector<double> moments(begin_);
    moments.insert(moments.end(), times_.end.begin(), times_.end.end());
    std::sort(moments.begin(), moments.end());
    const double tolerance = 1e-9 * times_.last;
    moments.erase(
        std::unique(moments.begin(), moments.end(), [&](double a, double b) { return b - a <= tolerance; }),
        moments.end());
    auto rank = [&](double time) {
      return static_cast<Position>(std::lower_bound(moments.begin(), moments.end(), time - tolerance) -
                                   moments.begin());
    };
    const auto latest = static_cast<Position>(moments.size()) + 1;
    for (LifetimeId id = 0; id < draft_.lifetimes.size(); ++id) {
      DraftLifetime& lifetime = draft_.lifetimes[id];
      lifetime.first = lifetime.resident     ? 0
                       : lifetime.prefetched ? claim_of(id, tolerance)
                                             : lifetime.first_use;
      lifetime.last = lifetime.resident ? static_cast<Position>(times_.ends.size()) : lifetime.last_use + 1;
      lifetime.span_first = lifetime.resident ? 0 : rank(begin_[id]);
      lifetime.span_last = lifetime.resident || period_.crosses(id)
                               ? latest
                               : std::max(lifetime.span_first + 1, rank(times_.end[id]));
      if (period_.crosses(id)) lifetime.span_wrap = rank(times_.end[id]);
    }
    draft_.has_spans = true;
    draft_.host_order = times_.host_order;
  }
  // The position whose op runs, or is next, when the prefetch begins.
  Position claim_of(LifetimeId id, double tolerance) const {
    const DraftLifetime& lifetime = draft_.lifetimes[id];
    Position low = lifetime.first_use < draft_.backward_end ? 0 : draft_.backward_end;
    Position high = lifetime.first_use;
    while (low < high) {
      const Position middle = low + (high - low) / 2;
      if (times_.ends[static_cast<std::size_t>(middle)] <= begin_[id] + tolerance)
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
      if (times_.joined[id] == no_id) {
        place[id] = static_cast<LifetimeId>(kept.size());
        kept.push_back(draft_.lifetimes[id]);
        continue;
      }
      place[id] = place[times_.joined[id]];
      DraftLifetime& into = kept[place[id]];
      into.last_use = draft_.lifetimes[id].last_use;
      into.last = draft_.lifetimes[id].last;
      into.span_last = draft_.lifetimes[id].span_last;
      into.offloaded = draft_.lifetimes[id].offloaded;
      into.postponed_to = draft_.lifetimes[id].postponed_to;
    }
    draft_.lifetimes = std::move(kept);
    for (LifetimeId& id : draft_.uses.all()) id = place[id];
  }

  const PeriodRates& rates_;
  const Period& period_;
  const PeriodTimes& times_;
  Draft draft_;
  std::vector<double> begin_;
};

void set_host_updates(const Problem& problem, const PeriodRates& rates, Period& period) {
  std::vector<std::uint8_t> resident(problem.layout.buckets.size(), 0);
  for (const DraftLifetime& lifetime : period.draft.lifetimes)
    if (lifetime.resident) resident[lifetime.bucket] = 1;
  period.ready.assign(problem.layout.buckets.size(), 0);
  period.host_seconds = period.ready;
  for (BucketId id : problem.layout.parameters)
    if (!resident[id]) {
      period.host_seconds[id] = rates.host_update[id];
      period.ready[id] = period.host_end += rates.host_update[id];
    }
}

void list_lifetimes(const PeriodRates& rates, Period& period) {
  const Draft& draft = period.draft;
  period.firsts.resize(draft.sequence.size());
  period.lasts.resize(draft.sequence.size());
  period.before.assign(draft.lifetimes.size(), no_id);
  for (LifetimeId id = 0; id < draft.lifetimes.size(); ++id) {
    const DraftLifetime& lifetime = draft.lifetimes[id];
    period.bytes.push_back(rates.bytes[lifetime.bucket]);
    if (lifetime.resident || period.crosses(id)) period.live_at_gate += period.bytes[id];
    // A bucket's lifetimes are made one after another, in the order of their uses.
    LifetimeId before = id;
    while (before > 0 && draft.lifetimes[before - 1].bucket == lifetime.bucket) {
      --before;
      if (draft.lifetimes[before].copy) continue;
      period.before[id] = before;
      break;
    }
    if (lifetime.resident) continue;
    period.firsts[static_cast<std::size_t>(lifetime.first_use)].push_back(id);
    period.lasts[static_cast<std::size_t>(lifetime.last_use)].push_back(id);
  }
}

}  // namespace

PeriodRates::PeriodRates(const Problem& problem) {
  const Graph& graph = *problem.graph;
  host_update.assign(problem.layout.buckets.size(), 0);
  for (const Op& one : graph.ops) {
    op.push_back(op_seconds(one, *problem.machine));
    if (one.phase != Phase::update) continue;
    for (TensorId id : one.writes) {
      if (id == graph.clip) gate = host_seconds(one, *problem.machine);
      if (graph.tensor(id).kind == TensorKind::parameter)
        host_update[problem.layout.bucket_of[id]] += host_seconds(one, *problem.machine);
    }
  }
  for (const Bucket& bucket : problem.layout.buckets) {
    h2d.push_back(problem.machine->h2d.seconds(bucket.bytes));
    d2h.push_back(problem.machine->d2h.seconds(bucket.bytes));
    bytes.push_back(align_up(bucket.bytes, Plan{}.alignment));
  }
}

Period make_period(const Problem& problem, const PeriodRates& rates, const Choices& choices) {
  Period period;
  period.choices = choices;
  period.draft = make_lifetimes(*problem.graph, problem.analysis, problem.layout, choices);
  const auto end = static_cast<Position>(period.draft.sequence.size());
  for (Position p = period.draft.backward_end; p < end; ++p) period.order.push_back(p);
  for (Position p = 0; p < period.draft.backward_end; ++p) period.order.push_back(p);
  for (const SequenceStep& step : period.draft.sequence) period.seconds.push_back(rates.op[step.op]);
  for (double seconds : period.seconds) period.compute_seconds += seconds;
  list_lifetimes(rates, period);
  set_host_updates(problem, rates, period);
  return period;
}

Bytes peak_of(const Period& period, const PeriodTimes& times) {
  struct Change {
    double time = 0;
    Bytes bytes = 0;
    bool ends = false;
  };
  std::vector<Change> changes;
  for (LifetimeId id = 0; id < times.begin.size(); ++id) {
    if (period.draft.lifetimes[id].resident) continue;
    changes.push_back({times.begin[id], period.bytes[id], false});
    changes.push_back({times.end[id], period.bytes[id], true});
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return a.time != b.time ? a.time < b.time : a.ends > b.ends;
  });
  Bytes live = period.live_at_gate, most = live;
  for (const Change& change : changes) {
    live = change.ends ? live - change.bytes : live + change.bytes;
    most = std::max(most, live);
  }
  return most;
}

Draft timed_draft(const PeriodRates& rates, const Period& period, const PeriodTimes& times,
                  std::uint64_t late) {
  return DraftTimer(rates, period, times).run(late);
}

}  // namespace stowage
