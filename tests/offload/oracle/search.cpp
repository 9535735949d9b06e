#include "tests/offload/oracle/search.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>

namespace stowage::oracle {
namespace {

constexpr double no_time = std::numeric_limits<double>::infinity();
constexpr int none = -1;

// What has been started, and when each lane is free: never before the start of the last job.
struct Label {
  double bound = 0;
  double compute = 0, h2d = 0, d2h = 0;
  std::uint64_t prefetched = 0, offloaded = 0;
  std::uint32_t root = 0;
  std::uint32_t parent = no_id;
  Bytes live = 0;                         // once all that has started has ended
  UpdateMask early = 0;                   // perhaps more, as long as buckets are fetched for the first time
  UpdateMask fetched = 0;                 // parameters
  UpdateMask updated = 0;                 // early, by the last job's start; or begun
  double updated_end = 0;                 // when the host has made these
  double compute_begin = 0, d2h_end = 0;  // of the last op's start; of the last offload
  std::int16_t done = 0;                  // compute jobs
  std::int16_t last_prefetch = none, last_offload = none;  // may still be running
  std::int16_t job = none;
};

struct Key {
  std::uint64_t prefetched, offloaded;
  std::uint32_t root;
  UpdateMask early;
  std::int16_t done, last_prefetch, last_offload;
  friend bool operator==(const Key&, const Key&) = default;
};
struct Hash {
  std::size_t operator()(const Key& key) const {
    std::uint64_t h =
        key.prefetched * 0x9e3779b97f4a7c15U ^ (key.offloaded + 0x7f4a7c15U) * 0xc2b2ae3d27d4eb4fU;
    h ^= (std::uint64_t{key.root} << 24) ^ (std::uint64_t{key.early} << 56) ^
         (static_cast<std::uint64_t>(key.done) << 12) ^
         (static_cast<std::uint64_t>(key.last_prefetch + 1) << 6) ^
         static_cast<std::uint64_t>(key.last_offload + 1);
    h *= 0x9e3779b97f4a7c15U;
    return h ^ (h >> 31);
  }
};

bool started(std::uint64_t mask, int job) { return (mask >> job & 1U) != 0; }

double late_seconds(const Step& step, UpdateMask updates) {
  double sum = 0;
  for (std::size_t p = 0; p < step.updates.size(); ++p)
    if ((updates >> p & 1U) != 0) sum += step.updates[p].late_seconds;
  return sum;
}

// Makes those of the early updates `wanted` that may begin by `until`, in the order in which they may.
// begin_of(update): from when on.
template <class Begin>
void update_early(const Step& step, UpdateMask wanted, double until, Label& label, Begin&& begin_of) {
  for (wanted &= ~label.updated; wanted != 0;) {
    std::size_t next = step.updates.size();
    double begin = no_time;
    for (std::size_t p = 0; p < step.updates.size(); ++p) {
      if ((wanted >> p & 1U) == 0) continue;
      const double here = begin_of(step.updates[p]);
      if (here < begin) next = p;
      begin = std::min(begin, here);
    }
    if (begin > until || next == step.updates.size()) return;
    const double late = late_seconds(step, ~label.early);
    label.updated_end = std::max({label.updated_end, late, begin}) + step.updates[next].early_seconds;
    label.updated |= UpdateMask{1} << next;
    wanted &= ~label.updated;
  }
}

// The least that a period takes which goes on from this label: each lane in its turn without waiting for
// bytes.
class Bound {
 public:
  // `decided`: no more updates will be early.
  double of(const Step& step, const Label& label, bool decided) {
    held_ = false;
    const double least = with(step, label, label.early);
    const UpdateMask open = decided ? 0 : step.undoable & ~label.early;
    if (!held_ || open == 0) return least;
    double best = least;
    for (UpdateMask more = open; more != 0; more = (more - 1) & open)
      best = std::min(best, with(step, label, label.early | more));
    return best;
  }

 private:
  // With these early updates.
  double with(const Step& step, const Label& label, UpdateMask early) {
    double now = label.compute, h2d = label.h2d, d2h = label.d2h;
    double host = late_seconds(step, label.fetched & ~early);
    double least_load = no_time;
    ready_.assign(step.offloads.size(), 0);
    for (int i = 0; i < label.done; ++i)  // ended, but for the last
      for (int id : step.compute[static_cast<std::size_t>(i)].offloads) {
        const Offload& offload = step.offloads[static_cast<std::size_t>(id)];
        if (started(label.offloaded, id)) {
          ready_[static_cast<std::size_t>(id)] = id == label.last_offload ? label.d2h : 0;
          continue;
        }
        const double begin = std::max(label.d2h, i + 1 == label.done ? label.compute : 0);
        ready_[static_cast<std::size_t>(id)] = begin + offload.seconds;
        d2h = std::max(d2h, i + 1 == label.done ? label.compute : 0) + offload.seconds;
      }
    for (std::size_t i = static_cast<std::size_t>(label.done); i < step.compute.size(); ++i) {
      const Compute& job = step.compute[i];
      for (int id : job.prefetches) {
        if (started(label.prefetched, id)) {
          if (id == label.last_prefetch) now = std::max(now, label.h2d);
          continue;
        }
        const Prefetch& prefetch = step.prefetches[static_cast<std::size_t>(id)];
        h2d += prefetch.seconds;
        if (prefetch.offload >= 0)
          now = std::max(now, ready_[static_cast<std::size_t>(prefetch.offload)] + prefetch.seconds);
        now = std::max(now, h2d);
        if (prefetch.updates == 0) continue;
        host += late_seconds(step, prefetch.updates & ~early);
        least_load = std::min(least_load, prefetch.seconds);
        held_ |= host + least_load > now;
        now = std::max(now, host + least_load);
      }
      now += job.seconds;
      for (int id : job.offloads) {
        const Offload& offload = step.offloads[static_cast<std::size_t>(id)];
        ready_[static_cast<std::size_t>(id)] = std::max(now, label.d2h) + offload.seconds;
        d2h = std::max(d2h, now) + offload.seconds;
      }
    }
    return std::max({now, d2h, updates_end(step, label, early)}) + step.gate_seconds;
  }
  double updates_end(const Step& step, Label label, UpdateMask early) const {
    label.early = early;
    update_early(step, early, no_time, label, [&](const Update& update) {
      const auto prefetch = static_cast<std::size_t>(update.prefetch);
      const double fetched = !started(label.prefetched, update.prefetch)
                                 ? label.h2d + step.prefetches[prefetch].seconds
                             : update.prefetch == label.last_prefetch ? label.h2d
                                                                      : 0;
      return std::max(fetched, ready_[static_cast<std::size_t>(update.offload)]);
    });
    return std::max(label.updated_end, late_seconds(step, ~early));
  }

  std::vector<double> ready_;  // by offload: the earliest end
  bool held_ = false;          // a first prefetch, by updates
};

class Searcher {
 public:
  Searcher(const Game& game, Bytes limit, std::size_t most_labels)
      : game_(game), limit_(limit), most_(most_labels) {}

  SearchResult run(const std::function<bool(const Schedule&)>& found, const Choice* only) {
    decided_ = only != nullptr;
    if (only != nullptr)
      add_root(*only, game_.step(*only));
    else
      game_.each(limit_, [&](const Choice& choice, Step&& step) { add_root(choice, step); });
    SearchResult result;
    result.lower = no_time;
    while (!queue_.empty()) {
      const std::uint32_t id = queue_.top().id;
      queue_.pop();
      const Label label = labels_[id];
      if (labels_.size() > most_) {
        result.complete = false;
        result.lower = std::min(result.lower, label.bound);
        break;
      }
      if (beaten(label, id)) continue;
      const Step& step = step_of(label.root);
      if (is_end(step, label)) {
        result.lower = std::min(result.lower, label.bound);
        if (found(schedule_of(id))) break;
        continue;
      }
      extend(step, id);
    }
    result.labels = labels_.size();
    return result;
  }

 private:
  struct Entry {
    double bound = 0;
    int jobs = 0;
    std::uint32_t id = 0;
    bool operator<(const Entry& other) const {
      return bound != other.bound ? bound > other.bound : jobs < other.jobs;
    }
  };
  struct Root {
    Choice choice;
  };

  void add_root(const Choice& choice, const Step& step) {
    Label label;
    label.root = static_cast<std::uint32_t>(roots_.size());
    label.live = step.live;
    label.early = choice.early;
    roots_.push_back({choice});
    label.bound = bound_.of(step, label, decided_);
    add(label, 0);
  }
  const Step& step_of(std::uint32_t root) {
    auto [it, fresh] = steps_.try_emplace(root);
    if (fresh) it->second = game_.step(roots_[root].choice);
    return it->second;
  }
  static bool is_end(const Step& step, const Label& label) {
    return label.done == static_cast<int>(step.compute.size()) &&
           static_cast<std::size_t>(__builtin_popcountll(label.offloaded)) == step.offloads.size();
  }
  static Key key_of(const Label& label) {
    return {label.prefetched, label.offloaded,     label.root,        label.early,
            label.done,       label.last_prefetch, label.last_offload};
  }

  static bool no_later(const Label& a, const Label& b) {
    return a.compute <= b.compute && a.h2d <= b.h2d && a.d2h <= b.d2h && a.updated_end <= b.updated_end;
  }
  void add(Label label, int jobs) {
    std::vector<std::uint32_t>& same = known_[key_of(label)];
    for (std::uint32_t id : same)
      if (no_later(labels_[id], label)) return;
    std::erase_if(same, [&](std::uint32_t id) { return no_later(label, labels_[id]); });
    const auto id = static_cast<std::uint32_t>(labels_.size());
    same.push_back(id);
    labels_.push_back(label);
    queue_.push({label.bound, jobs, id});
  }
  // Whether a better label of the same jobs came after it.
  bool beaten(const Label& label, std::uint32_t id) {
    const std::vector<std::uint32_t>& same = known_[key_of(label)];
    return std::find(same.begin(), same.end(), id) == same.end();
  }

  // The earliest time from `begin` on at which `bytes` more are free; no_time where only jobs that have not
  // started yet could free them.
  double when_free(const Step& step, const Label& label, double begin, Bytes bytes) const {
    const Bytes by_compute =
        label.done > 0 ? step.compute[static_cast<std::size_t>(label.done - 1)].frees : 0;
    const Bytes by_offload =
        label.last_offload >= 0 ? step.offloads[static_cast<std::size_t>(label.last_offload)].bytes : 0;
    auto fits = [&](double time) {
      const Bytes live =
          label.live + (time < label.compute ? by_compute : 0) + (time < label.d2h ? by_offload : 0);
      return live + bytes <= limit_;
    };
    if (bytes == 0 || fits(begin)) return begin;
    const double first = std::max(begin, std::min(label.compute, label.d2h));
    if (fits(first)) return first;
    const double last = std::max({begin, label.compute, label.d2h});
    return fits(last) ? last : no_time;
  }

  void extend(const Step& step, std::uint32_t id) {
    const Label label = labels_[id];
    if (label.done < static_cast<int>(step.compute.size())) start_compute(step, label, id);
    for (int i = 0; i < static_cast<int>(step.prefetches.size()); ++i) {
      if (!started(label.prefetched, i)) start_prefetch(step, label, id, i);
      if (step.has_clip && !started(label.prefetched, 0)) break;
    }
    for (int i = 0; i < static_cast<int>(step.offloads.size()); ++i)
      if (!started(label.offloaded, i)) start_offload(step, label, id, i);
  }
  // No later job starts before `begin`.
  void push(const Step& step, Label label, std::uint32_t parent, double begin, int job) {
    if (job % 3 != 2 && leaves_offload(step, labels_[parent], begin)) return;
    label.parent = parent;
    label.job = static_cast<std::int16_t>(job);
    Label before = labels_[parent];
    update_by(step, before, begin);
    label.updated = before.updated;
    label.updated_end = before.updated_end;
    label.compute = std::max(label.compute, begin);
    label.h2d = std::max(label.h2d, begin);
    label.d2h = std::max(label.d2h, begin);
    update_by(step, label, begin);
    // What has ended makes no more difference.
    if (label.h2d <= begin) label.last_prefetch = none;
    if (label.d2h <= begin) label.last_offload = none;
    label.bound = std::max(bound_.of(step, label, decided_), labels_[parent].bound);
    add(label, label.done + __builtin_popcountll(label.prefetched) + __builtin_popcountll(label.offloaded));
  }
  // Makes the early updates that may begin by `time`.
  static void update_by(const Step& step, Label& label, double time) {
    update_early(step, label.early, time, label, [&](const Update& update) {
      if (!started(label.prefetched, update.prefetch) || !started(label.offloaded, update.offload))
        return no_time;
      return std::max(update.prefetch == label.last_prefetch ? label.h2d : 0,
                      update.offload == label.last_offload ? label.d2h : 0);
    });
  }
  // An offload frees bytes and takes none, so starting it as soon as it may costs nothing: lists are left out
  // in which another job starts after one that was ready would have ended on the idle lane.
  static bool leaves_offload(const Step& step, const Label& label, double begin) {
    for (int i = 0; i < static_cast<int>(step.offloads.size()); ++i) {
      const Offload& job = step.offloads[static_cast<std::size_t>(i)];
      if (started(label.offloaded, i) || job.behind >= label.done) continue;
      if (std::max(label.d2h_end, ready(label, job)) + job.seconds <= begin) return true;
    }
    return false;
  }
  // No earlier than the end of the op before.
  static double ready(const Label& label, const Offload& job) {
    return job.behind + 1 == label.done ? label.compute : label.compute_begin;
  }
  void start_compute(const Step& step, Label label, std::uint32_t id) {
    const Compute& job = step.compute[static_cast<std::size_t>(label.done)];
    if ((job.needs & ~label.prefetched) != 0) return;
    double begin = label.compute;
    // What was fetched before the last prefetch had arrived when that one started.
    if (label.last_prefetch >= 0 && started(job.needs, label.last_prefetch))
      begin = std::max(begin, label.h2d);
    begin = when_free(step, label, begin, job.takes);
    if (begin == no_time) return;
    label.compute = begin + job.seconds;
    label.compute_begin = begin;
    label.live += job.takes;
    label.live -= job.frees;
    ++label.done;
    push(step, label, id, begin, 3 * (label.done - 1));
  }
  void start_prefetch(const Step& step, Label label, std::uint32_t id, int i) {
    const Prefetch& job = step.prefetches[static_cast<std::size_t>(i)];
    if (job.behind >= label.done || (job.offload >= 0 && !started(label.offloaded, job.offload))) return;
    double begin = label.h2d;
    if (job.offload >= 0 && job.offload == label.last_offload) begin = std::max(begin, label.d2h);
    label.fetched |= job.updates;
    const auto begin_with = [&](UpdateMask early) {
      const double host = job.updates == 0 ? 0 : late_seconds(step, label.fetched & ~early);
      return when_free(step, label, std::max(begin, host), job.bytes);
    };
    const UpdateMask open = decided_ || job.updates == 0 ? 0 : label.fetched & step.undoable & ~label.early;
    for (UpdateMask more = open;; more = (more - 1) & open) {
      if (each_counts(more, [&](UpdateMask some) { return begin_with(label.early | some); }))
        push_prefetch(step, label, id, i, begin_with(label.early | more), label.early | more);
      if (more == 0) break;
    }
  }
  // Whether the prefetch would begin later if one of `more` were not early.
  template <class Begin>
  static bool each_counts(UpdateMask more, Begin&& begin_with) {
    for (UpdateMask rest = more; rest != 0; rest &= rest - 1)
      if (begin_with(more & ~(rest & -rest)) <= begin_with(more)) return false;
    return true;
  }
  void push_prefetch(const Step& step, Label label, std::uint32_t id, int i, double begin, UpdateMask early) {
    if (begin == no_time) return;
    const Prefetch& job = step.prefetches[static_cast<std::size_t>(i)];
    label.early = early;
    label.h2d = begin + job.seconds;
    label.live += job.bytes;
    label.prefetched |= std::uint64_t{1} << i;
    label.last_prefetch = static_cast<std::int16_t>(i);
    push(step, label, id, begin, 3 * i + 1);
  }
  void start_offload(const Step& step, Label label, std::uint32_t id, int i) {
    const Offload& job = step.offloads[static_cast<std::size_t>(i)];
    if (job.behind >= label.done) return;
    double begin = label.d2h;
    if (job.behind + 1 == label.done) begin = std::max(begin, label.compute);
    if (begin > std::max(label.d2h_end, ready(label, job))) return;
    label.d2h_end = begin + job.seconds;
    label.d2h = begin + job.seconds;
    label.live -= job.bytes;
    label.offloaded |= std::uint64_t{1} << i;
    label.last_offload = static_cast<std::int16_t>(i);
    push(step, label, id, begin, 3 * i + 2);
  }

  Schedule schedule_of(std::uint32_t id) {
    Schedule schedule;
    schedule.choice = roots_[labels_[id].root].choice;
    schedule.step = step_of(labels_[id].root);
    schedule.compute.resize(schedule.step.compute.size());
    schedule.prefetches.resize(schedule.step.prefetches.size());
    schedule.offloads.resize(schedule.step.offloads.size());
    schedule.seconds = labels_[id].bound;
    schedule.choice.early = labels_[id].early;
    for (; labels_[id].parent != no_id; id = labels_[id].parent) {
      const Label& label = labels_[id];
      const auto i = static_cast<std::size_t>(label.job / 3);
      schedule.order.insert(schedule.order.begin(), label.job);
      if (label.job % 3 == 0)
        schedule.compute[i] = {label.compute - schedule.step.compute[i].seconds, label.compute};
      else if (label.job % 3 == 1)
        schedule.prefetches[i] = {label.h2d - schedule.step.prefetches[i].seconds, label.h2d};
      else
        schedule.offloads[i] = {label.d2h - schedule.step.offloads[i].seconds, label.d2h};
    }
    order_early(schedule);
    return schedule;
  }
  static void order_early(Schedule& schedule) {
    std::vector<double> begins;  // by parameter
    for (std::size_t p = 0; p < schedule.step.updates.size(); ++p) {
      begins.push_back(0);
      if ((schedule.choice.early >> p & 1U) == 0) continue;
      const Update& update = schedule.step.updates[p];
      begins[p] = std::max(schedule.prefetches[static_cast<std::size_t>(update.prefetch)].end,
                           schedule.offloads[static_cast<std::size_t>(update.offload)].end);
      schedule.early.push_back(static_cast<int>(p));
    }
    std::stable_sort(schedule.early.begin(), schedule.early.end(), [&](int a, int b) {
      return begins[static_cast<std::size_t>(a)] < begins[static_cast<std::size_t>(b)];
    });
  }

  const Game& game_;
  Bytes limit_;
  std::size_t most_;
  bool decided_ = false;  // which updates are early
  Bound bound_;
  std::vector<Root> roots_;
  std::unordered_map<std::uint32_t, Step> steps_;
  std::vector<Label> labels_;
  std::unordered_map<Key, std::vector<std::uint32_t>, Hash> known_;
  std::priority_queue<Entry> queue_;
};

}  // namespace

SearchResult search(const Game& game, Bytes limit, std::size_t most_labels,
                    const std::function<bool(const Schedule&)>& found, const Choice* only) {
  return Searcher(game, limit, most_labels).run(found, only);
}

}  // namespace stowage::oracle
