#include "offload/plan/residency.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace stowage {
namespace {

// The greedy judges by this distance: transfers overlap the ops before them.
constexpr std::uint32_t judging_distance = 2;

// A bucket's loads or an activation item, and the level that it would get.
struct Promotion {
  bool is_activation = false;
  std::uint32_t index = 0;  // bucket or item
  int level = 0;            // LoadChoice or ActivationChoice
};
struct Gain {
  double seconds_per_byte = 0;
  double link_bytes_per_byte = 0;
  Promotion promotion;
  std::size_t evaluated_at = 0;  // length of the path when computed
};
bool operator<(const Gain& a, const Gain& b) {
  auto key = [](const Gain& g) {
    return std::tuple(g.seconds_per_byte, g.link_bytes_per_byte, !g.promotion.is_activation,
                      ~g.promotion.index, -g.promotion.level);
  };
  return key(a) < key(b);
}

class Promoter {
 public:
  explicit Promoter(const Problem& problem) : problem_(problem), choices_(minimum_choices(problem)) {}

  std::vector<Choices> run() {
    path_.push_back(choices_);
    current_ = make_sketch(problem_, choices_, judging_distance);
    for (std::uint32_t item = 0; item < problem_.items.size(); ++item) push_all(true, item);
    for (BucketId id = 0; id < problem_.layout.buckets.size(); ++id) push_all(false, id);
    while (!queue_.empty()) {
      Gain top = queue_.top();
      queue_.pop();
      if (top.promotion.level <= level_of(top.promotion)) continue;
      if (top.evaluated_at != path_.size())
        push(top.promotion);
      else
        take(top.promotion);
    }
    return std::move(path_);
  }

 private:
  void push_all(bool is_activation, std::uint32_t index) {
    for (int level = 1; level <= highest_level(problem_, is_activation, index); ++level)
      push({is_activation, index, level});
  }
  int level_of(const Promotion& promotion) const {
    return promotion.is_activation ? static_cast<int>(choice_of(problem_.items[promotion.index], choices_))
                                   : static_cast<int>(choices_.loads[promotion.index]);
  }
  void set(const Promotion& promotion, Choices& choices) const {
    if (promotion.is_activation)
      choose(problem_.items[promotion.index], static_cast<ActivationChoice>(promotion.level), choices);
    else
      choices.loads[promotion.index] = static_cast<LoadChoice>(promotion.level);
  }

  void push(const Promotion& promotion) {
    if (promotion.level <= level_of(promotion)) return;
    Choices promoted = choices_;
    set(promotion, promoted);
    Sketch sketch = make_sketch(problem_, promoted, judging_distance);
    double bytes = held_bytes(problem_, promotion.is_activation, promotion.index, promotion.level);
    double seconds = std::max(0.0, current_.step_seconds - sketch.step_seconds);
    // Less than a nanosecond is the simulation's rounding.
    queue_.push({seconds < 1e-9 ? 0 : seconds / bytes,
                 (static_cast<double>(current_.link_bytes) - static_cast<double>(sketch.link_bytes)) / bytes,
                 promotion, path_.size()});
  }

  void take(const Promotion& promotion) {
    set(promotion, choices_);
    current_ = make_sketch(problem_, choices_, judging_distance);
    path_.push_back(choices_);
  }

  const Problem& problem_;
  Choices choices_;
  Sketch current_;
  std::priority_queue<Gain> queue_;
  std::vector<Choices> path_;
};

}  // namespace

int highest_level(const Problem& problem, bool is_activation, std::uint32_t index) {
  if (is_activation) return static_cast<int>(ActivationChoice::keep);
  const BucketRole role = problem.layout.roles[index];
  if (role == BucketRole::parameter) return static_cast<int>(LoadChoice::resident);
  return role == BucketRole::input ? static_cast<int>(LoadChoice::held) : 0;
}

double held_bytes(const Problem& problem, bool is_activation, std::uint32_t index, int level) {
  constexpr double passing = 0.25;  // of what only passes through while it is transferred
  if (is_activation) {
    const double bytes = static_cast<double>(problem.items[index].bytes);
    return std::max(1.0, level == static_cast<int>(ActivationChoice::offload) ? passing * bytes : bytes);
  }
  double bytes = static_cast<double>(problem.layout.buckets[index].bytes);
  if (level == static_cast<int>(LoadChoice::each_unit)) bytes *= passing;
  if (level == static_cast<int>(LoadChoice::resident))
    for (BucketId id = 0; id < problem.layout.buckets.size(); ++id)
      if (problem.layout.parameters_of[id] == index)
        bytes += static_cast<double>(problem.layout.buckets[id].bytes);
  return std::max(1.0, bytes);
}

Choices minimum_choices(const Problem& problem) {
  Choices choices;
  choices.activations.assign(problem.layout.buckets.size(), ActivationChoice::recompute);
  for (const ActivationItem& item : problem.items)
    if (!item.rebuildable) choose(item, ActivationChoice::offload, choices);
  choices.loads.assign(problem.layout.buckets.size(), LoadChoice::each_op);
  return choices;
}

std::vector<Choices> least_choices(const Problem& problem) {
  std::vector<Choices> ways;
  auto add = [&](ActivationChoice rebuildable, ActivationChoice inputs) {
    ways.push_back(minimum_choices(problem));
    for (const ActivationItem& item : problem.items)
      choose(item, item.rebuildable ? rebuildable : inputs, ways.back());
  };
  add(ActivationChoice::recompute, ActivationChoice::offload);
  add(ActivationChoice::recompute, ActivationChoice::keep);
  add(ActivationChoice::offload, ActivationChoice::offload);
  add(ActivationChoice::keep, ActivationChoice::keep);
  return ways;
}

Choices resident_choices(const Problem& problem) {
  Choices choices;
  choices.activations.assign(problem.layout.buckets.size(), ActivationChoice::recompute);
  for (const ActivationItem& item : problem.items) choose(item, ActivationChoice::keep, choices);
  choices.loads.assign(problem.layout.buckets.size(), LoadChoice::held);
  for (BucketId id : problem.layout.parameters) choices.loads[id] = LoadChoice::resident;
  return choices;
}

std::vector<Choices> simulated_path(const Problem& problem) { return Promoter(problem).run(); }

}  // namespace stowage
