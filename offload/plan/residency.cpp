#include "offload/plan/residency.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace stowage {
namespace {

// The greedy judges by this distance: transfers overlap the ops before them.
constexpr std::uint32_t judging_distance = 2;

// An item and what promoting it once would change.
struct Item {
  bool is_unit = false;
  std::uint32_t index = 0;  // unit or bucket
};
struct Gain {
  double seconds_per_byte = 0;
  double link_bytes_per_byte = 0;
  Item item;
  std::size_t evaluated_at = 0;  // length of the path when computed
};
bool operator<(const Gain& a, const Gain& b) {
  auto key = [](const Gain& g) {
    return std::tuple(g.seconds_per_byte, g.link_bytes_per_byte, !g.item.is_unit, ~g.item.index);
  };
  return key(a) < key(b);
}

class Promoter {
 public:
  explicit Promoter(const Problem& problem) : problem_(problem), choices_(minimum_choices(problem)) {}

  std::vector<Choices> run() {
    path_.push_back(choices_);
    current_ = make_sketch(problem_, choices_, judging_distance);
    for (std::uint32_t unit = 0; unit < problem_.analysis.units.size(); ++unit) push({true, unit});
    for (BucketId id = 0; id < problem_.layout.buckets.size(); ++id)
      if (is_loaded(id)) push({false, id});
    while (!queue_.empty()) {
      Gain top = queue_.top();
      queue_.pop();
      if (top.evaluated_at != path_.size())
        push(top.item);
      else
        take(top.item);
    }
    return std::move(path_);
  }

 private:
  bool is_loaded(BucketId id) const {
    BucketRole role = problem_.layout.roles[id];
    return role == BucketRole::parameter || role == BucketRole::input;
  }
  bool promote(const Item& item, Choices& choices) const {
    if (item.is_unit) {
      ActivationChoice& choice = choices.units[item.index];
      if (choice == ActivationChoice::keep) return false;
      choice = static_cast<ActivationChoice>(static_cast<int>(choice) + 1);
      return true;
    }
    LoadChoice& choice = choices.loads[item.index];
    if (choice >= LoadChoice::held) return false;
    choice = static_cast<LoadChoice>(static_cast<int>(choice) + 1);
    return true;
  }

  // What the item holds longer once promoted.
  double held_bytes(const Item& item) const {
    if (!item.is_unit) return static_cast<double>(problem_.layout.buckets[item.index].bytes);
    const UnitReplay& replay = problem_.analysis.units[item.index];
    if (choices_.units[item.index] == ActivationChoice::recompute)
      return static_cast<double>(replay.saved_bytes);
    double bytes = 0;
    for (TensorId group : replay.inputs)
      bytes += static_cast<double>(problem_.layout.buckets[problem_.layout.bucket_of[group]].bytes);
    return bytes;
  }

  void push(const Item& item) {
    Choices promoted = choices_;
    if (!promote(item, promoted)) return;
    Sketch sketch = make_sketch(problem_, promoted, judging_distance);
    double bytes = std::max(1.0, held_bytes(item));
    double seconds = std::max(0.0, current_.step_seconds - sketch.step_seconds);
    // Less than a nanosecond is the simulation's rounding.
    queue_.push({seconds < 1e-9 ? 0 : seconds / bytes,
                 (static_cast<double>(current_.link_bytes) - static_cast<double>(sketch.link_bytes)) / bytes,
                 item, path_.size()});
  }

  void take(const Item& item) {
    promote(item, choices_);
    current_ = make_sketch(problem_, choices_, judging_distance);
    path_.push_back(choices_);
    push(item);
  }

  const Problem& problem_;
  Choices choices_;
  Sketch current_;
  std::priority_queue<Gain> queue_;
  std::vector<Choices> path_;
};

}  // namespace

Choices minimum_choices(const Problem& problem) {
  Choices choices;
  choices.units.assign(problem.analysis.units.size(), ActivationChoice::recompute_offload_input);
  choices.loads.assign(problem.layout.buckets.size(), LoadChoice::each_op);
  return choices;
}

Choices resident_choices(const Problem& problem) {
  Choices choices;
  choices.units.assign(problem.analysis.units.size(), ActivationChoice::keep);
  choices.loads.assign(problem.layout.buckets.size(), LoadChoice::held);
  for (BucketId id = 0; id < problem.layout.buckets.size(); ++id)
    if (problem.layout.roles[id] == BucketRole::parameter) choices.loads[id] = LoadChoice::resident;
  choices.optimizer_on_host = false;
  return choices;
}

std::vector<Choices> promotion_path(const Problem& problem) { return Promoter(problem).run(); }

}  // namespace stowage
