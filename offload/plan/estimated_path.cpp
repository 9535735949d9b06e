#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "offload/plan/lane_totals.h"
#include "offload/plan/residency.h"

namespace stowage {

// Items that are alike in identical blocks, in the order of their promotion to one level.
struct PathClass {
  bool is_activation = false;
  int level = 0;
  std::vector<std::uint32_t> members;
  std::size_t next = 0;  // the first that is not promoted yet
};

namespace {

constexpr std::size_t parts = 8;  // of a class of items that are alike
constexpr std::size_t few = 200;  // classes that are all evaluated anew after each promotion

struct Entry {
  double gain = 0;
  double link_gain = 0;  // seconds on the link per byte
  std::size_t of = 0;    // class
  std::size_t evaluated_at = 0;
};
bool operator<(const Entry& a, const Entry& b) {
  return std::tuple(a.gain, a.link_gain, ~a.of) < std::tuple(b.gain, b.link_gain, ~b.of);
}

double link_seconds(const LaneTotals& totals) {
  return totals.front.h2d + totals.front.d2h + totals.back.h2d + totals.back.d2h;
}

// What a unit is, as far as its activations go: units with one key are alike.
using UnitKey = std::vector<std::pair<std::string, double>>;
std::vector<UnitKey> unit_keys(const Problem& problem) {
  std::vector<UnitKey> keys(problem.analysis.units.size());
  for (const Op& op : problem.graph->ops)
    if (op.phase != Phase::update && op.unit < keys.size())
      keys[op.unit].push_back({op.kernel, op.cost.bytes});
  return keys;
}

class ClassFinder {
 public:
  ClassFinder(const Problem& problem, const LaneModel& model) : problem_(problem), model_(model) {}

  std::vector<PathClass> run() {
    find_activation_classes();
    find_load_classes();
    return std::move(classes_);
  }

 private:
  void find_activation_classes() {
    const std::vector<UnitKey> keys = unit_keys(problem_);
    std::map<std::tuple<UnitKey, std::size_t, Bytes>, std::vector<std::uint32_t>> found;
    std::vector<std::size_t> index_in_unit(keys.size(), 0);
    for (std::uint32_t item = 0; item < problem_.items.size(); ++item) {
      const ActivationItem& of = problem_.items[item];
      found[{keys[of.unit], index_in_unit[of.unit]++, of.bytes}].push_back(item);
    }
    for (auto& [key, members] : found) {
      std::reverse(members.begin(), members.end());
      for (ActivationChoice choice : {ActivationChoice::offload, ActivationChoice::keep})
        classes_.push_back({true, static_cast<int>(choice), members, 0});
    }
  }
  void find_load_classes() {
    std::map<std::tuple<BucketRole, Bytes, double, double>, std::vector<std::uint32_t>> found;
    for (BucketId id = 0; id < problem_.layout.buckets.size(); ++id) {
      if (highest_level(problem_, false, id) == 0) continue;
      const LaneTotals most = model_.of_loads(id, LoadChoice::each_op);
      found[{problem_.layout.roles[id], problem_.layout.buckets[id].bytes, most.front.h2d, most.back.h2d}]
          .push_back(id);
    }
    for (auto& [key, members] : found)
      for (int level = 1; level <= highest_level(problem_, false, members.front()); ++level) {
        PathClass loads{false, level, members, 0};
        if (level != static_cast<int>(LoadChoice::resident))
          std::reverse(loads.members.begin(), loads.members.end());
        classes_.push_back(std::move(loads));
      }
  }

  const Problem& problem_;
  const LaneModel& model_;
  std::vector<PathClass> classes_;
};

class Estimator {
 public:
  Estimator(const Problem& problem, const LaneModel& model, std::vector<PathClass> classes, Choices start)
      : problem_(problem), model_(model), choices_(std::move(start)), classes_(std::move(classes)) {}

  std::vector<Choices> run() {
    path_.push_back(choices_);
    totals_ = model_.totals(choices_);
    for (std::size_t i = 0; i < classes_.size(); ++i) push(i);
    while (!queue_.empty()) {
      const Entry top = queue_.top();
      queue_.pop();
      if (top.evaluated_at != path_.size()) {
        push(top.of);
        continue;
      }
      take(top.of);
      if (classes_.size() <= few) evaluate_all();
    }
    return std::move(path_);
  }

  Choices relaxed(Bytes limit) {
    double seconds = model_.totals(choices_).seconds();
    for (const PathClass& of : classes_)
      for (int level : of.is_activation ? activation_levels(of) : std::vector<int>{of.level})
        if (level > level_of(of, of.members.front())) relax(of, level, limit, seconds);
    return std::move(choices_);
  }

 private:
  // Both classes of the same items look at all levels, so each of them twice.
  std::vector<int> activation_levels(const PathClass& of) const {
    std::vector<int> levels;
    for (ActivationChoice choice :
         {ActivationChoice::recompute, ActivationChoice::offload, ActivationChoice::keep})
      if (choice != ActivationChoice::recompute || problem_.items[of.members.front()].rebuildable)
        levels.push_back(static_cast<int>(choice));
    return levels;
  }
  void relax(const PathClass& of, int level, Bytes limit, double& seconds) {
    const Choices before = choices_;
    for (std::uint32_t member : of.members) set(of, member, level);
    const double after = model_.totals(choices_).seconds();
    if (after <= seconds && Sketcher(problem_, choices_).serial_bytes() <= limit)
      seconds = after;
    else
      choices_ = before;
  }

  int level_of(const PathClass& of, std::uint32_t member) const {
    return of.is_activation ? static_cast<int>(choice_of(problem_.items[member], choices_))
                            : static_cast<int>(choices_.loads[member]);
  }
  // The next part of the class, as promoted by others meanwhile or not.
  std::vector<std::uint32_t> next_part(const PathClass& of) const {
    const std::size_t most = (of.members.size() + parts - 1) / parts;
    std::vector<std::uint32_t> members;
    for (std::size_t i = of.next; i < of.members.size() && members.size() < most; ++i)
      if (level_of(of, of.members[i]) < of.level) members.push_back(of.members[i]);
    return members;
  }

  LaneTotals contribution(const PathClass& of, std::uint32_t member) const {
    return of.is_activation ? model_.of_unit(problem_.items[member].unit, choices_)
                            : model_.of_loads(member, choices_.loads[member]);
  }
  int set(const PathClass& of, std::uint32_t member, int level) {
    const int before = level_of(of, member);
    if (of.is_activation)
      choose(problem_.items[member], static_cast<ActivationChoice>(level), choices_);
    else
      choices_.loads[member] = static_cast<LoadChoice>(level);
    return before;
  }
  static LaneTotals scaled(LaneTotals totals, double by) {
    for (PhaseTotals* phase : {&totals.front, &totals.back})
      for (double* part : {&phase->compute, &phase->h2d, &phase->d2h, &phase->host}) *part *= by;
    totals.update *= by;
    return totals;
  }

  void evaluate_all() {
    queue_ = {};
    for (std::size_t i = 0; i < classes_.size(); ++i) push(i);
  }

  // The first of the part stands for all of it.
  void push(std::size_t id) {
    const PathClass& of = classes_[id];
    const std::vector<std::uint32_t> members = next_part(of);
    if (members.empty()) return;
    const auto count = static_cast<double>(members.size());
    LaneTotals change = scaled(contribution(of, members.front()), -1);
    const int before = set(of, members.front(), of.level);
    change += contribution(of, members.front());
    set(of, members.front(), before);
    LaneTotals after = totals_;
    after += scaled(change, count);
    const double bytes = held_bytes(problem_, of.is_activation, members.front(), of.level) * count;
    const double gain = std::max(0.0, totals_.seconds() - after.seconds());
    queue_.push({gain < 1e-9 ? 0 : gain / bytes, -link_seconds(change) * count / bytes, id, path_.size()});
  }

  void take(std::size_t id) {
    PathClass& of = classes_[id];
    for (std::uint32_t member : next_part(of)) {
      totals_ += scaled(contribution(of, member), -1);
      set(of, member, of.level);
      totals_ += contribution(of, member);
    }
    while (of.next < of.members.size() && level_of(of, of.members[of.next]) >= of.level) ++of.next;
    path_.push_back(choices_);
    if (classes_.size() > few) push(id);
  }

  const Problem& problem_;
  const LaneModel& model_;
  Choices choices_;
  LaneTotals totals_;
  std::vector<PathClass> classes_;
  std::priority_queue<Entry> queue_;
  std::vector<Choices> path_;
};

}  // namespace

struct PathEstimator::Parts {
  explicit Parts(const Problem& of) : problem(of), model(of), classes(ClassFinder(of, model).run()) {}
  Estimator from(const Choices& start) const { return {problem, model, classes, start}; }

  const Problem& problem;
  LaneModel model;
  std::vector<PathClass> classes;
};

PathEstimator::PathEstimator(const Problem& problem) : parts_(std::make_unique<const Parts>(problem)) {}
PathEstimator::~PathEstimator() = default;
std::vector<Choices> PathEstimator::path_from(const Choices& start) const {
  return parts_->from(start).run();
}
Choices PathEstimator::relaxed(const Choices& start, Bytes limit) const {
  return parts_->from(start).relaxed(limit);
}

std::vector<Choices> estimated_path(const Problem& problem) {
  return PathEstimator(problem).path_from(lowest_choices(problem));
}

}  // namespace stowage
