#include "tests/offload/oracle/search.h"

#include <algorithm>
#include <queue>
#include <unordered_map>

#include "tests/offload/oracle/search_bound.h"

namespace stowage::oracle {
namespace {

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

class Searcher {
 public:
  Searcher(const Game& game, const Budget& limit, std::size_t most_labels)
      : game_(game), limit_(limit.device), host_limit_(limit.host), most_(most_labels) {}

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
    if (step.host_bytes(choice.early) > host_limit_) return;
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
      if (step.host_bytes(label.early | more) <= host_limit_ &&
          each_counts(more, [&](UpdateMask some) { return begin_with(label.early | some); }))
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
  Bytes limit_, host_limit_;
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

SearchResult search(const Game& game, const Budget& limit, std::size_t most_labels,
                    const std::function<bool(const Schedule&)>& found, const Choice* only) {
  return Searcher(game, limit, most_labels).run(found, only);
}

}  // namespace stowage::oracle
