// The plan family and the choice from it. See planner.h for the promise that it keeps.

#include <algorithm>
#include <optional>

#include "offload/plan/bound.h"
#include "offload/plan/candidate.h"
#include "offload/plan/repair.h"
#include "offload/plan/residency.h"
#include "stowage/error.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

constexpr std::uint32_t distances[] = {0, 2, 8, 32, 1U << 20U};  // the last: as far as time allows
constexpr std::size_t longest_path = 96;
constexpr std::size_t shortest_path = 12;
// What the family may cost: ops looked at, and ops simulated for a path that is found by simulation.
constexpr std::size_t most_family_ops = 6'000'000;
constexpr std::size_t most_path_ops = 1'000'000;
constexpr std::size_t most_repair_ops = 400'000, most_repair_ops_of_many = 20'000;  // for each bucket size
constexpr std::size_t most_starts = 8, few_ops = 28;

Problem resident_problem(const Graph& graph, const Machine& machine) {
  return make_problem(graph, machine, {.target_bytes = 0, .group_gradients = false});
}
Plan resident_plan(const Problem& problem) {
  Choices choices = resident_choices(problem);
  // Serial, so that *need* depends on no rate.
  Plan plan = complete(problem, make_untimed_sketch(problem, choices, 0).draft);
  plan.policy = "none";
  return plan;
}

// The minimum-memory plan: nothing in it depends on the machine's rates.
struct Minimum {
  Plan plan;
  std::string op;
};
Minimum minimum_plan(const Problem& problem) {
  std::optional<Minimum> best;
  for (const Choices& choices : least_choices(problem)) {
    Sketch sketch = make_untimed_sketch(problem, choices, 0);
    if (best && sketch.live_peak_bytes >= best->plan.device_peak_bytes) continue;
    Plan plan = complete(problem, sketch.draft);
    if (!best || plan.device_peak_bytes < best->plan.device_peak_bytes)
      best = Minimum{std::move(plan), tightest_op(problem, sketch.draft)};
  }
  best->plan.policy = "auto";
  return std::move(*best);
}

// Bucket sizes of the family, smallest first. The first gives the minimum.
std::vector<Bytes> bucket_sizes(const Machine& machine, const PlanOptions& options) {
  if (options.bucket_bytes > 0) return {options.bucket_bytes};
  Bytes efficient = efficient_bucket_bytes(machine);
  return {0, efficient};
}

// At most `points` of the path's choices, ends included, at even distances.
std::vector<Choices> thin(std::vector<Choices> path, std::size_t points) {
  if (path.size() <= points) return path;
  std::vector<Choices> thinned;
  for (std::size_t i = 0; i < points; ++i) thinned.push_back(path[i * (path.size() - 1) / (points - 1)]);
  return thinned;
}

// Members of the family, one for each distance.
struct Candidate {
  const Problem* problem = nullptr;
  Choices choices;
};

// Those with most memory, which tend to be the fastest, first.
std::vector<Candidate> family(const std::vector<Problem>& problems) {
  std::vector<Candidate> candidates;
  for (const Problem& problem : problems) {
    const std::size_t ops = problem.graph->ops.size();
    std::vector<std::vector<Choices>> paths{estimated_path(problem)};
    if (3 * (problem.items.size() + problem.layout.buckets.size()) * ops <= most_path_ops)
      paths.push_back(simulated_path(problem));
    const std::size_t members = problems.size() * paths.size() * std::size(distances) * ops;
    const std::size_t points = std::clamp(most_family_ops / members, shortest_path, longest_path);
    for (std::vector<Choices>& path : paths)
      for (const Choices& choices : thin(std::move(path), points)) candidates.push_back({&problem, choices});
  }
  std::reverse(candidates.begin(), candidates.end());
  return candidates;
}

// The front that repair finds (repair.h), of all problems, fastest first.
struct Repaired {
  const Problem* problem = nullptr;
  LimitedSketch limited;
};
// Less than the simulation's rounding.
constexpr double hair = 1e-9;
std::vector<Repaired> repaired_members(const std::vector<Problem>& problems,
                                       const std::vector<Candidate>& candidates, Bytes least) {
  std::vector<Repaired> members;
  for (const Problem& problem : problems) {
    if (&problem != &problems.front() && problem.layout.buckets == problems.front().layout.buckets) continue;
    const std::size_t most_ops =
        problem.graph->ops.size() <= few_ops ? most_repair_ops : most_repair_ops_of_many;
    std::vector<Choices> starts;
    for (const Candidate& candidate : candidates)
      if (candidate.problem == &problem) starts.push_back(candidate.choices);
    starts = thin(std::move(starts), most_starts);
    for (Choices& choices : least_choices(problem)) starts.push_back(std::move(choices));
    for (LimitedSketch& limited : repaired_front(problem, starts, least, most_ops))
      members.push_back({&problem, std::move(limited)});
  }
  std::stable_sort(members.begin(), members.end(), [](const Repaired& a, const Repaired& b) {
    return a.limited.seconds < b.limited.seconds;
  });
  return members;
}

bool fits(const Plan& plan, const Budget& budget) {
  return plan.device_peak_bytes <= budget.device && plan.host_bytes <= budget.host;
}

// Keeps the fastest plan that fits, and of those that fit the device the one with fewest host bytes.
class Selection {
 public:
  explicit Selection(const Budget& budget) : budget_(budget) {}
  void offer(Plan plan) {
    if (plan.device_peak_bytes > budget_.device) return;
    if (!least_host_ || plan.host_bytes < *least_host_) least_host_ = plan.host_bytes;
    if (!fits(plan, budget_)) return;
    if (!best_ || plan.predicted_step_seconds < best_->predicted_step_seconds) best_ = std::move(plan);
  }
  bool beaten(double seconds) const { return best_ && best_->predicted_step_seconds <= seconds; }
  std::optional<Plan>& best() { return best_; }
  Bytes least_host() const { return least_host_.value_or(0); }

 private:
  Budget budget_;
  std::optional<Plan> best_;
  std::optional<Bytes> least_host_;
};

struct Timed {
  const Problem* problem = nullptr;
  Sketch sketch;
};

// Those that may fit and beat what the selection has, fastest first as far as a sketch can tell.
std::vector<Timed> fitting_members(const std::vector<Candidate>& candidates, const Selection& selection,
                                   const Budget& budget) {
  std::vector<Timed> members;
  for (const Candidate& candidate : candidates) {
    const Sketcher sketcher(*candidate.problem, candidate.choices);
    if (selection.beaten(sketcher.compute_seconds())) continue;
    for (std::uint32_t distance : distances) {
      Sketch sketch = sketcher.at(distance);
      if (sketch.live_peak_bytes > budget.device) continue;
      time_sketch(*candidate.problem, sketch);
      if (!selection.beaten(sketch.step_seconds)) members.push_back({candidate.problem, std::move(sketch)});
    }
  }
  std::stable_sort(members.begin(), members.end(), [](const Timed& a, const Timed& b) {
    return a.sketch.step_seconds < b.sketch.step_seconds;
  });
  return members;
}

Plan with_bound(Plan plan, const Graph& graph, const Machine& machine, const Budget& budget) {
  StepBound bound = lower_bound(graph, machine, budget.device);
  plan.lower_bound_seconds = bound.seconds;
  plan.bound_by = bound.bound_by;
  return plan;
}

std::variant<Plan, Infeasible> plan_none(const Graph& graph, const Machine& machine, const Budget& budget) {
  Problem problem = resident_problem(graph, machine);
  Plan plan = resident_plan(problem);
  if (plan.device_peak_bytes > budget.device) {
    Draft draft = make_untimed_sketch(problem, resident_choices(problem), 0).draft;
    return Infeasible{budget.device, plan.device_peak_bytes, false, tightest_op(problem, draft)};
  }
  if (plan.host_bytes > budget.host)
    return Infeasible{budget.host, plan.host_bytes, true, graph.op(plan.instructions[plan.gate].op).name};
  return with_bound(std::move(plan), graph, machine, budget);
}

std::variant<Plan, Infeasible> plan_automatic(const Graph& graph, const Machine& machine,
                                              const Budget& budget, const PlanOptions& options) {
  std::vector<Problem> problems;
  for (Bytes bytes : bucket_sizes(machine, options))
    problems.push_back(make_problem(graph, machine, {.target_bytes = bytes}));
  Minimum minimum = minimum_plan(problems.front());
  Plan resident = resident_plan(resident_problem(graph, machine));
  resident.policy = "auto";
  Bytes least = std::min(minimum.plan.device_peak_bytes, resident.device_peak_bytes);
  if (least > budget.device) return Infeasible{budget.device, least, false, minimum.op};
  Selection selection(budget);
  selection.offer(std::move(minimum.plan));
  selection.offer(std::move(resident));
  const std::vector<Candidate> candidates = family(problems);
  for (const Repaired& member : repaired_members(problems, candidates, least)) {
    if (selection.beaten(member.limited.seconds * (1 - hair))) continue;
    LimitedScheduler(*member.problem).complete_each(member.limited, [&](Plan plan) {
      plan.policy = "auto";
      selection.offer(std::move(plan));
    });
  }
  for (const Timed& timed : fitting_members(candidates, selection, budget)) {
    if (selection.beaten(timed.sketch.step_seconds)) break;
    Plan plan = complete(*timed.problem, timed.sketch.draft);
    plan.policy = "auto";
    selection.offer(std::move(plan));
  }
  if (!selection.best()) return Infeasible{budget.host, selection.least_host(), true, minimum.op};
  return with_bound(std::move(*selection.best()), graph, machine, budget);
}

// What is left of the device budget beside context and libraries.
Budget for_plans(Budget budget, const Machine& machine) {
  if (budget.device != unlimited) budget.device -= std::min(budget.device, machine.overhead_bytes);
  return budget;
}

}  // namespace

std::variant<Plan, Infeasible> make_plan(const Graph& graph, const Machine& machine, const Budget& budget,
                                         const PlanOptions& options) {
  const Budget left = for_plans(budget, machine);
  auto planned = options.policy == Policy::none ? plan_none(graph, machine, left)
                                                : plan_automatic(graph, machine, left, options);
  if (auto* infeasible = std::get_if<Infeasible>(&planned); infeasible != nullptr && !infeasible->host) {
    infeasible->budget = budget.device;
    infeasible->minimum += machine.overhead_bytes;
  }
  return planned;
}

Bytes need_bytes(const Graph& graph, const Machine& machine) {
  return resident_plan(resident_problem(graph, machine)).device_peak_bytes;
}

Bytes minimum_bytes(const Graph& graph, const Machine& machine, const PlanOptions& options) {
  if (options.policy == Policy::none) return need_bytes(graph, machine);
  Bytes target = bucket_sizes(machine, options).front();
  Bytes least = minimum_plan(make_problem(graph, machine, {.target_bytes = target})).plan.device_peak_bytes;
  return std::min(least, need_bytes(graph, machine));
}

}  // namespace stowage
