#include "offload/plan/order_search.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>

#include "offload/plan/period_jobs.h"

namespace stowage {
namespace {

constexpr double never_ends = std::numeric_limits<double>::infinity();

// What has been started, and when each lane is free.
struct Label {
  double bound = 0;                      // of the period
  double start = 0;                      // of the last job: none starts earlier
  double compute = 0, h2d = 0, d2h = 0;  // lanes are free
  std::uint64_t loaded = 0;              // loads started or joined
  double host = 0;                       // of the updates of what is loaded
  Bytes live = 0;                        // once all that has started has ended
  Bytes freed_by_op = 0;                 // when the last op ends
  std::uint32_t ops = 0;                 // started
  std::uint32_t last_load = no_id;       // on the link
  std::uint32_t job = 0;                 // the last: see Job
  std::uint32_t parent = 0;
  std::uint32_t row = 0;  // of the offloads' ends
};
// Ops count from 0; loads, and loads that go on with the bytes of the one before, behind them.
enum class Job : std::uint8_t { op, load, join };

class OrderSearch {
 public:
  OrderSearch(const PeriodRates& rates, const Period& period, Bytes limit, double cutoff,
              const OrderEffort& effort)
      : rates_(rates),
        period_(period),
        jobs_(rates, period, effort.postponed),
        limit_(align_up(std::min(limit, most_limit), Plan{}.alignment)),
        cutoff_(cutoff),
        effort_(effort) {}

  double least() {
    Label first;
    return bound(first, nullptr);
  }
  std::vector<FoundOrder> run() {
    if (!jobs_.possible || jobs_.loads.size() > PeriodJobs::most_loads || period_.live_at_gate > limit_)
      return {};
    Label first;
    first.live = period_.live_at_gate;
    first.bound = bound(first, nullptr);
    if (first.bound >= cutoff_) return {};
    begin(first);
    std::vector<std::uint32_t> level{0};
    for (std::size_t i = 0; i < jobs_.ops.size() + jobs_.loads.size() && !level.empty(); ++i) {
      next_.clear();
      for (std::uint32_t id : level) extend(id);
      level = best_of_next();
    }
    if (effort_.labels_left != nullptr)
      *effort_.labels_left -= std::min(*effort_.labels_left, labels_.size());
    std::vector<FoundOrder> found;
    for (std::uint32_t id : level) {
      if (found.size() == effort_.most_found) break;
      found.push_back(order_of(id));
    }
    return found;
  }

  std::vector<FoundOrder> moved(const PeriodTimes& times) {
    std::vector<FoundOrder> found;
    if (!jobs_.possible || jobs_.loads.size() > PeriodJobs::most_loads || period_.live_at_gate > limit_)
      return found;
    const std::vector<std::uint32_t> list = list_of(times);
    for (std::size_t from = 0; from < list.size(); ++from) {
      if (list[from] % 3 != static_cast<std::uint32_t>(Job::load)) continue;
      for (std::size_t to = 0; to < list.size(); ++to) {
        if (to == from) continue;
        std::vector<std::uint32_t> other = list;
        other.erase(other.begin() + static_cast<std::ptrdiff_t>(from));
        other.insert(other.begin() + static_cast<std::ptrdiff_t>(to), list[from]);
        if (const auto last = replay(other)) found.push_back(order_of(*last));
      }
    }
    return found;
  }

 private:
  static constexpr Bytes most_limit = Bytes{1} << 62U;

  void begin(const Label& first) {
    ends_.assign(jobs_.offloads.size(), 0);
    labels_.assign(1, first);
  }
  // Jobs by their start.
  std::vector<std::uint32_t> list_of(const PeriodTimes& times) const {
    std::vector<std::pair<double, std::uint32_t>> starts;
    for (std::uint32_t i = 0; i < jobs_.loads.size(); ++i)
      starts.emplace_back(times.begin[jobs_.loads[i].id], job_of(Job::load, i));
    for (std::uint32_t i = 0; i < jobs_.ops.size(); ++i)
      starts.emplace_back(times.ends[static_cast<std::size_t>(period_.order[i])] - jobs_.ops[i].seconds,
                          job_of(Job::op, i));
    std::stable_sort(starts.begin(), starts.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<std::uint32_t> list;
    for (const auto& [start, job] : starts) list.push_back(job);
    return list;
  }
  // The last label of this list, if it takes less than the cutoff.
  std::optional<std::uint32_t> replay(const std::vector<std::uint32_t>& list) {
    Label first;
    first.live = period_.live_at_gate;
    first.bound = bound(first, nullptr);
    begin(first);
    std::uint32_t id = 0;
    for (const std::uint32_t job : list) {
      next_.clear();
      const Label label = labels_[id];
      if (job % 3 == static_cast<std::uint32_t>(Job::op)) {
        if (job / 3 == label.ops) start_op(label, id);
      } else if (may_start(label, job / 3)) {
        start_load(label, id, job / 3);
      }
      if (next_.empty()) return std::nullopt;
      id = next_.front();
    }
    return id;
  }

  const double* ends_of(const Label& label) const { return ends_.data() + label.row * jobs_.offloads.size(); }
  std::uint32_t offloads_of(const Label& label) const {
    if (label.ops == jobs_.ops.size()) return static_cast<std::uint32_t>(jobs_.offloads.size());
    return jobs_.ops[label.ops].first_offload;
  }
  static bool has(std::uint64_t set, std::uint32_t load) { return (set >> load & 1U) != 0; }

  // The least that a period takes which goes on from here: each lane in its turn without waiting for bytes.
  double bound(const Label& label, const double* ends) {
    double now = label.compute, h2d = label.h2d, d2h = label.d2h, host = label.host;
    double least_load = never_ends;
    soonest_.assign(jobs_.offloads.size(), 0);
    for (std::uint32_t i = 0; i < offloads_of(label); ++i) soonest_[i] = ends[i];
    for (std::size_t i = label.ops; i < jobs_.ops.size(); ++i) {
      const OpJob& op = jobs_.ops[i];
      if (label.last_load != no_id && has(op.needs, label.last_load)) now = std::max(now, label.h2d);
      for (std::uint32_t id : op.loads) {
        const LoadJob& load = jobs_.loads[id];
        // One that may join is perhaps not loaded at all.
        if (has(label.loaded, id) || load.joins) continue;
        h2d += load.seconds;
        now = std::max(now, h2d);
        if (load.offload != no_id) now = std::max(now, soonest_[load.offload] + load.seconds);
        if (load.host_seconds > 0) {
          // Whichever of them is updated last.
          host += load.host_seconds;
          least_load = std::min(least_load, load.seconds);
          now = std::max(now, host + least_load);
        }
      }
      now += op.seconds;
      for (std::uint32_t k = op.first_offload; k < op.first_offload + op.offloads; ++k)
        soonest_[k] = d2h = std::max(d2h, now) + jobs_.offloads[k].seconds;
    }
    return std::max({now, d2h, period_.host_end}) + rates_.gate;
  }

  // The first moment from `time` on with room for `bytes` more for good.
  double room_from(const Label& label, double time, Bytes bytes) const {
    if (label.live + bytes > limit_) return never_ends;
    Bytes left = limit_ - label.live - bytes;
    const double* ends = ends_of(label);
    bool op = label.compute > time;
    for (std::uint32_t after = offloads_of(label); after > 0 && ends[after - 1] > time; --after) {
      const std::uint32_t i = after - 1;
      if (op && label.compute >= ends[i]) {
        if (label.freed_by_op > left) return label.compute;
        left -= label.freed_by_op;
        op = false;
      }
      if (jobs_.offloads[i].bytes > left) return ends[i];
      left -= jobs_.offloads[i].bytes;
    }
    return op && label.freed_by_op > left ? label.compute : time;
  }

  void extend(std::uint32_t id) {
    const Label label = labels_[id];
    if (label.ops < jobs_.ops.size()) start_op(label, id);
    for (std::uint32_t load = 0; load < jobs_.loads.size(); ++load) {
      if (!may_start(label, load)) continue;
      start_load(label, id, load);
      if (effort_.may_join && jobs_.loads[load].joins && jobs_.loads[load].op_before + 1 == label.ops &&
          label.start < label.compute)
        join(label, id, load);
    }
  }
  bool may_start(const Label& label, std::uint32_t load) const {
    if (has(label.loaded, load)) return false;
    const std::uint32_t before = jobs_.loads[load].op_before, offload = jobs_.loads[load].offload;
    return (before == no_id || before < label.ops) && (offload == no_id || offload < offloads_of(label));
  }
  void start_op(Label label, std::uint32_t parent) {
    const OpJob& op = jobs_.ops[label.ops];
    if ((op.needs & ~label.loaded) != 0) return;
    double begin = std::max(label.start, label.compute);
    // What was loaded before the last had arrived when that one started.
    if (label.last_load != no_id && has(op.needs, label.last_load)) begin = std::max(begin, label.h2d);
    begin = room_from(label, begin, op.takes);
    if (begin == never_ends) return;
    ends_for_next_.assign(ends_of(label), ends_of(label) + op.first_offload);
    label.start = begin;
    label.compute = begin + op.seconds;
    label.live = label.live + op.takes - op.frees;
    label.freed_by_op = op.frees;
    for (std::uint32_t k = op.first_offload; k < op.first_offload + op.offloads; ++k) {
      label.d2h = std::max(label.d2h, label.compute) + jobs_.offloads[k].seconds;
      label.live -= jobs_.offloads[k].bytes;
      ends_for_next_.push_back(label.d2h);
    }
    label.job = job_of(Job::op, label.ops);
    ++label.ops;
    add(label, parent);
  }
  void start_load(Label label, std::uint32_t parent, std::uint32_t id) {
    const LoadJob& load = jobs_.loads[id];
    if (load.host_seconds > 0) label.host += load.host_seconds;
    double begin = std::max(label.start, label.h2d);
    if (load.host_seconds > 0) begin = std::max(begin, label.host);
    if (load.offload != no_id) begin = std::max(begin, ends_of(label)[load.offload]);
    begin = room_from(label, begin, load.bytes);
    if (begin == never_ends) return;
    label.start = begin;
    label.h2d = begin + load.seconds;
    label.live += load.bytes;
    label.loaded |= std::uint64_t{1} << id;
    label.last_load = id;
    label.job = job_of(Job::load, id);
    ends_for_next_.assign(ends_of(labels_[parent]), ends_of(labels_[parent]) + offloads_of(label));
    add(label, parent);
  }
  void join(Label label, std::uint32_t parent, std::uint32_t id) {
    label.freed_by_op -= jobs_.loads[id].bytes;
    label.live += jobs_.loads[id].bytes;
    label.loaded |= std::uint64_t{1} << id;
    label.job = job_of(Job::join, id);
    if (label.live > limit_) return;
    ends_for_next_.assign(ends_of(labels_[parent]), ends_of(labels_[parent]) + offloads_of(label));
    add(label, parent);
  }
  std::uint32_t job_of(Job job, std::uint32_t index) const {
    return index * 3 + static_cast<std::uint32_t>(job);
  }

  void add(Label label, std::uint32_t parent) {
    label.parent = parent;
    if (label.last_load != no_id && label.h2d <= label.start) label.last_load = no_id;
    label.bound = std::max(bound(label, ends_for_next_.data()), labels_[parent].bound);
    if (label.bound >= cutoff_) return;
    label.row = static_cast<std::uint32_t>(labels_.size());
    ends_for_next_.resize(jobs_.offloads.size(), 0);
    ends_.insert(ends_.end(), ends_for_next_.begin(), ends_for_next_.end());
    next_.push_back(static_cast<std::uint32_t>(labels_.size()));
    labels_.push_back(label);
  }

  // Of the same jobs, and nowhere later.
  bool beats(const Label& a, const Label& b) const {
    if (a.loaded != b.loaded || a.ops != b.ops || a.live != b.live) return false;
    if (a.start > b.start || a.compute > b.compute || a.h2d > b.h2d || a.d2h > b.d2h) return false;
    const double *ends_a = ends_of(a), *ends_b = ends_of(b);
    for (std::uint32_t after = offloads_of(a); after > 0 && ends_a[after - 1] > a.start; --after)
      if (ends_a[after - 1] > ends_b[after - 1]) return false;
    return true;
  }
  std::vector<std::uint32_t> best_of_next() {
    std::stable_sort(next_.begin(), next_.end(), [&](std::uint32_t a, std::uint32_t b) {
      const Label &x = labels_[a], &y = labels_[b];
      return std::tuple(x.bound, x.live, x.compute, x.h2d) < std::tuple(y.bound, y.live, y.compute, y.h2d);
    });
    std::vector<std::uint32_t> best;
    for (std::uint32_t id : next_) {
      if (best.size() == effort_.width) break;
      if (std::none_of(best.begin(), best.end(),
                       [&](std::uint32_t other) { return beats(labels_[other], labels_[id]); }))
        best.push_back(id);
    }
    return best;
  }

  FoundOrder order_of(std::uint32_t id) const {
    std::vector<std::uint32_t> list;
    for (std::uint32_t at = id; at != 0; at = labels_[at].parent) list.push_back(at);
    std::reverse(list.begin(), list.end());
    FoundOrder found;
    found.seconds = labels_[id].bound;
    PeriodTimes& times = found.times;
    times.ends.resize(jobs_.ops.size());
    times.begin.resize(period_.bytes.size());
    times.end.resize(period_.bytes.size());
    times.joined.assign(period_.bytes.size(), no_id);
    for (std::uint32_t at : list) play(labels_[at], times);
    times.last = labels_[id].compute + labels_[id].d2h;
    times.postponed = jobs_.postponed;
    return found;
  }
  void play(const Label& label, PeriodTimes& times) const {
    const std::uint32_t index = label.job / 3;
    if (label.job % 3 == static_cast<std::uint32_t>(Job::op)) return play_op(label, index, times);
    const LoadJob& load = jobs_.loads[index];
    if (label.job % 3 == static_cast<std::uint32_t>(Job::join)) {
      times.joined[load.id] = load.before;
      times.begin[load.id] = times.end[load.before];
    } else {
      times.begin[load.id] = label.start;
      times.loads.push_back(load.id);
      if (load.host_seconds > 0) times.host_order.push_back(period_.draft.lifetimes[load.id].bucket);
    }
  }
  void play_op(const Label& label, std::uint32_t index, PeriodTimes& times) const {
    const auto p = static_cast<std::size_t>(period_.order[index]);
    times.ends[p] = label.compute;
    for (LifetimeId id : period_.firsts[p])
      if (!period_.draft.lifetimes[id].prefetched) times.begin[id] = label.start;
    for (LifetimeId id : period_.lasts[p])
      if (!period_.draft.lifetimes[id].offloaded) times.end[id] = label.compute;
    const OpJob& op = jobs_.ops[index];
    for (std::uint32_t k = op.first_offload; k < op.first_offload + op.offloads; ++k)
      times.end[jobs_.offloads[k].id] = ends_of(label)[k];
  }

  const PeriodRates& rates_;
  const Period& period_;
  PeriodJobs jobs_;
  Bytes limit_;
  double cutoff_;
  OrderEffort effort_;
  std::vector<Label> labels_;
  std::vector<double> ends_;  // by label and offload
  std::vector<std::uint32_t> next_;
  std::vector<double> soonest_, ends_for_next_;
};

}  // namespace

std::vector<FoundOrder> moved_orders(const PeriodRates& rates, const Period& period, Bytes limit,
                                     double cutoff, const PeriodTimes& times) {
  const bool joins =
      std::any_of(times.joined.begin(), times.joined.end(), [](LifetimeId id) { return id != no_id; });
  if (joins || !times.postponed.empty()) return {};
  return OrderSearch(rates, period, limit, cutoff, {}).moved(times);
}

double order_bound(const PeriodRates& rates, const Period& period) {
  return OrderSearch(rates, period, unlimited, never_ends, {}).least();
}

std::vector<LifetimeId> postponable(const Period& period) {
  std::vector<LifetimeId> ids;
  for (Position p : period.order)
    for (LifetimeId id : period.lasts[static_cast<std::size_t>(p)])
      if (period.draft.lifetimes[id].offloaded) ids.push_back(id);
  if (!ids.empty()) ids.pop_back();
  return ids;
}

std::vector<FoundOrder> search_orders(const PeriodRates& rates, const Period& period, Bytes limit,
                                      double cutoff, const OrderEffort& effort) {
  return OrderSearch(rates, period, limit, cutoff, effort).run();
}

}  // namespace stowage
