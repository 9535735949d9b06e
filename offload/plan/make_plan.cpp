// The plan family and the choice from it. See planner.h for the promise that it keeps.

#include <algorithm>
#include <optional>

#include "offload/plan/bound.h"
#include "offload/plan/candidate.h"
#include "offload/plan/policies/policies.h"
#include "offload/plan/repair.h"
#include "offload/plan/residency.h"
#include "stowage/error.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

// How many live bytes transfers may make, in parts of what the ops alone need; and without limit.
constexpr double shares[] = {0.5, 0.75, 0.9, 1, 1.1, 1.5, 2.5, 0};
constexpr std::size_t longest_path = 96;
constexpr std::size_t shortest_path = 12;
// What the family may cost: ops looked at, and ops simulated for a path that is found by simulation.
constexpr std::size_t most_family_ops = 6'000'000;
constexpr std::size_t most_path_ops = 1'000'000;
constexpr std::size_t most_repair_ops = 400'000, most_repair_ops_of_many = 20'000;  // for each bucket size
constexpr std::size_t most_starts = 8, few_ops = 28;

// One for each order of micro-batches that `wanted` lets.
using WantedOrder = std::optional<MicroBatchOrder>;
std::vector<Problem> make_problems(const Graph& graph, const Machine& machine, const BucketOptions& options,
                                   WantedOrder wanted) {
  std::vector<Problem> problems;
  const std::vector<MicroBatchOrder> possible = possible_orders(graph);
  for (MicroBatchOrder order : possible)
    if (!wanted || *wanted == order || possible.size() == 1)
      problems.push_back(make_problem(graph, machine, options, order));
  return problems;
}
// The same of the automatic policy's `replays`; `units` is the graph in the units that those may rebuild.
std::vector<Problem> automatic_problems(const Graph& units, const Machine& machine, Bytes target_bytes,
                                        const PlanOptions& options, Replays replays) {
  std::vector<Problem> problems =
      make_problems(units, machine, {.target_bytes = target_bytes}, options.order);
  if (replays == Replays::whole_blocks)
    for (Problem& problem : problems) problem.items = whole_unit_items(problem.items);
  return problems;
}
Plan resident_plan(const Problem& problem) {
  Choices choices = resident_choices(problem);
  // Serial, so that *need* depends on no rate.
  Plan plan = complete(problem, Sketcher(problem, choices).serial().draft);
  plan.policy = "none";
  return plan;
}

// Of the orders, the one that needs least: without transfers all take the same time.
struct Resident {
  Problem problem;
  Plan plan;
};
Resident least_resident(const Graph& graph, const Machine& machine, WantedOrder wanted) {
  const BucketOptions options{.target_bytes = 0, .group_gradients = false};
  std::vector<Problem> problems = make_problems(graph, machine, options, wanted);
  std::vector<Plan> plans;
  for (const Problem& problem : problems) plans.push_back(resident_plan(problem));
  const auto least = std::min_element(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) {
    return a.device_peak_bytes < b.device_peak_bytes;
  });
  return {std::move(problems[static_cast<std::size_t>(least - plans.begin())]), std::move(*least)};
}

// The minimum-memory plan: nothing in it depends on the machine's rates.
struct Minimum {
  Plan plan;
  std::string op;
};
Minimum minimum_plan(const Problem& problem) {
  std::optional<Minimum> least;
  for (const Choices& choices : minimum_candidates(problem)) {
    const Sketch sketch = Sketcher(problem, choices).serial();
    if (least && sketch.live_peak_bytes >= least->plan.device_peak_bytes) continue;
    Plan plan = complete(problem, sketch.draft);
    if (!least || plan.device_peak_bytes < least->plan.device_peak_bytes)
      least = Minimum{std::move(plan), tightest_op(problem, sketch.draft)};
  }
  least->plan.policy = "auto";
  return std::move(*least);
}
Minimum least_minimum(const std::vector<Problem>& problems) {
  Minimum least = minimum_plan(problems.front());
  for (std::size_t i = 1; i < problems.size(); ++i) {
    Minimum other = minimum_plan(problems[i]);
    if (other.plan.device_peak_bytes < least.plan.device_peak_bytes) least = std::move(other);
  }
  return least;
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

// Members of the family, one for each share.
struct Candidate {
  const Problem* problem = nullptr;
  Choices choices;
};

// Those with most memory, which tend to be the fastest, first.
std::vector<Candidate> family(const std::vector<Problem>& problems) {
  std::vector<Candidate> candidates;
  for (const Problem& problem : problems) {
    const std::size_t ops = problem.graph->ops.size();
    std::vector<std::vector<Choices>> paths{minimum_candidates(problem), estimated_path(problem)};
    if (3 * (problem.items.size() + problem.layout.buckets.size()) * ops <= most_path_ops)
      paths.push_back(simulated_path(problem));
    const std::size_t members = problems.size() * paths.size() * std::size(shares) * ops;
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
    for (Choices& choices : minimum_candidates(problem)) starts.push_back(std::move(choices));
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

Bytes cap_of(double share, Bytes serial) {
  return share > 0 ? static_cast<Bytes>(share * static_cast<double>(serial)) : unlimited;
}

// What the emulated systems would do is in the family too, so that none of them is faster.
void add_policy_members(PolicyProblems& problems, const Selection& selection, const Budget& budget,
                        std::vector<Timed>& members) {
  for (const PolicyMember& member : all_policy_members(problems)) {
    const Sketcher sketcher(*member.problem, member.choices, member.handicaps);
    if (selection.beaten(sketcher.compute_seconds()) || sketcher.serial_bytes() > budget.device) continue;
    Sketch sketch = sketcher.ahead(member.distance);
    if (sketch.live_peak_bytes > budget.device) continue;
    time_sketch(*member.problem, sketch);
    if (!selection.beaten(sketch.step_seconds)) members.push_back({member.problem, std::move(sketch)});
  }
}

// Those that may fit and beat what the selection has, fastest first as far as a sketch can tell.
std::vector<Timed> fitting_members(const std::vector<Candidate>& candidates,
                                   std::optional<PolicyProblems>& emulated, const Selection& selection,
                                   const Budget& budget) {
  std::vector<Timed> members;
  if (emulated) add_policy_members(*emulated, selection, budget, members);
  for (const Candidate& candidate : candidates) {
    const Sketcher sketcher(*candidate.problem, candidate.choices);
    if (selection.beaten(sketcher.compute_seconds())) continue;
    if (sketcher.serial_bytes() > budget.device) continue;
    for (double share : shares) {
      Sketch sketch = sketcher.within(cap_of(share, sketcher.serial_bytes()));
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

Plan with_bound(Plan plan, const Problem& problem, const Budget& budget) {
  const StepBound bound = lower_bound(problem, budget.device);
  plan.lower_bound_seconds = bound.seconds;
  plan.bound_by = bound.bound_by;
  return plan;
}

std::variant<Plan, Infeasible> plan_none(const Graph& graph, const Machine& machine, const Budget& budget,
                                         WantedOrder wanted) {
  auto [problem, plan] = least_resident(graph, machine, wanted);
  if (plan.device_peak_bytes > budget.device) {
    Draft draft = Sketcher(problem, resident_choices(problem)).serial().draft;
    return Infeasible{budget.device, plan.device_peak_bytes, false, tightest_op(problem, draft)};
  }
  if (plan.host_bytes > budget.host)
    return Infeasible{budget.host, plan.host_bytes, true, graph.op(plan.instructions[plan.gate].op).name};
  return with_bound(std::move(plan), problem, budget);
}

// Of one kind of replays: the problems of all bucket sizes, and the smallest plan.
struct Automatic {
  std::vector<Problem> problems;
  Minimum minimum;
};
Automatic automatic(const Graph& units, const Machine& machine, const PlanOptions& options, Replays replays) {
  const std::vector<Bytes> sizes = bucket_sizes(machine, options);
  Automatic result;
  result.problems = automatic_problems(units, machine, sizes.front(), options, replays);
  result.minimum = least_minimum(result.problems);
  for (std::size_t i = 1; i < sizes.size(); ++i)
    for (Problem& problem : automatic_problems(units, machine, sizes[i], options, replays))
      result.problems.push_back(std::move(problem));
  return result;
}

// Offers the members of the family over these problems that may fit and be the fastest.
void offer_family(const std::vector<Problem>& problems, Bytes least, std::optional<PolicyProblems>& emulated,
                  const Budget& budget, Selection& selection) {
  const std::vector<Candidate> candidates = family(problems);
  for (const Repaired& member : repaired_members(problems, candidates, least)) {
    if (selection.beaten(member.limited.seconds * (1 - hair))) continue;
    LimitedScheduler(*member.problem).complete_each(member.limited, [&](Plan plan) {
      plan.policy = "auto";
      selection.offer(std::move(plan));
    });
  }
  for (const Timed& timed : fitting_members(candidates, emulated, selection, budget)) {
    if (selection.beaten(timed.sketch.step_seconds)) break;
    Plan plan = complete(*timed.problem, timed.sketch.draft);
    plan.policy = "auto";
    selection.offer(std::move(plan));
  }
}

// The family of replays within blocks has that of whole blocks in it, so it is never slower.
std::variant<Plan, Infeasible> plan_automatic(const Graph& graph, const Machine& machine,
                                              const Budget& budget, const PlanOptions& options) {
  const Graph blocks = with_whole_blocks(graph);
  const bool whole = options.replays == Replays::whole_blocks;
  Automatic within = automatic(whole ? blocks : graph, machine, options, options.replays);
  Plan resident = least_resident(graph, machine, options.order).plan;
  resident.policy = "auto";
  const Bytes least = std::min(within.minimum.plan.device_peak_bytes, resident.device_peak_bytes);
  if (least > budget.device) return Infeasible{budget.device, least, false, within.minimum.op};
  Selection selection(budget);
  selection.offer(std::move(within.minimum.plan));
  selection.offer(resident);
  std::optional<PolicyProblems> emulated;  // none of them has another order
  if (options.order.value_or(MicroBatchOrder::layer_major) == MicroBatchOrder::layer_major)
    emulated.emplace(graph, machine, options.bucket_bytes);
  offer_family(within.problems, least, emulated, budget, selection);
  if (!whole && blocks.unit_names != graph.unit_names) {
    Automatic others = automatic(blocks, machine, options, Replays::whole_blocks);
    const Bytes others_least = std::min(others.minimum.plan.device_peak_bytes, resident.device_peak_bytes);
    emulated.reset();  // offered already
    offer_family(others.problems, others_least, emulated, budget, selection);
    selection.offer(std::move(others.minimum.plan));
  }
  if (!selection.best()) return Infeasible{budget.host, selection.least_host(), true, within.minimum.op};
  if (!whole) return with_bound(std::move(*selection.best()), within.problems.front(), budget);
  return with_bound(std::move(*selection.best()), make_problems(graph, machine, {}, options.order).front(),
                    budget);
}

std::variant<Plan, Infeasible> plan_with(Policy policy, const Graph& graph, const Machine& machine,
                                         const Budget& budget, const PlanOptions& options) {
  if (policy == Policy::automatic) return plan_automatic(graph, machine, budget, options);
  if (policy == Policy::none) return plan_none(graph, machine, budget, options.order);
  auto planned = plan_policy(policy, graph, machine, budget, options.bucket_bytes);
  if (auto* plan = std::get_if<Plan>(&planned))
    return with_bound(std::move(*plan), make_problems(graph, machine, {.target_bytes = 0}, {}).front(),
                      budget);
  return planned;
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
  auto planned = plan_with(options.policy, graph, machine, left, options);
  if (auto* infeasible = std::get_if<Infeasible>(&planned); infeasible != nullptr && !infeasible->host) {
    infeasible->budget = budget.device;
    infeasible->minimum += machine.overhead_bytes;
  }
  return planned;
}

Bytes need_bytes(const Graph& graph, const Machine& machine) {
  return least_resident(graph, machine, {}).plan.device_peak_bytes;
}

Bytes minimum_bytes(const Graph& graph, const Machine& machine, const PlanOptions& options) {
  if (is_emulated(options.policy))
    return policy_minimum_bytes(options.policy, graph, machine, options.bucket_bytes);
  const Bytes need = least_resident(graph, machine, options.order).plan.device_peak_bytes;
  if (options.policy == Policy::none) return need;
  Bytes target = bucket_sizes(machine, options).front();
  const bool whole = options.replays == Replays::whole_blocks;
  const Graph units = whole ? with_whole_blocks(graph) : Graph{};
  const Bytes least =
      least_minimum(automatic_problems(whole ? units : graph, machine, target, options, options.replays))
          .plan.device_peak_bytes;
  return std::min(least, need);
}

}  // namespace stowage
