// Who answers which policy, and with what budget. See planner.h for the promise that it keeps.

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>

#include "offload/plan/bound.h"
#include "offload/plan/family.h"
#include "offload/plan/residency.h"
#include "offload/plan/selection.h"
#include "offload/plan/tighten.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

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
    Plan plan = complete_low(problem, sketch.draft);
    if (!least || plan.device_peak_bytes < least->plan.device_peak_bytes)
      least = Minimum{std::move(plan), tightest_op(problem, sketch.draft)};
  }
  least->plan.policy = "auto";
  return std::move(*least);
}
// Of the orders, with the smallest buckets.
Minimum least_minimum(const std::vector<Problem>& problems) {
  Minimum least = minimum_plan(problems.front());
  for (std::size_t i = 1; i < problems.size(); ++i) {
    if (problems[i].layout.target_bytes != problems.front().layout.target_bytes) break;
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

// Of graphs of few ops: with each of these as the target some neighbours share a bucket, but not all. Two
// bytes more than they have: a bucket ends with a unit where it has half its target, which one of two alike
// must not have.
std::vector<Bytes> sizes_between(const Graph& graph, const BucketLayout& singles) {
  constexpr std::size_t most_ops = 20;
  std::vector<Bytes> sizes;
  if (graph.ops.size() > most_ops) return sizes;
  const std::vector<BucketId>& order = singles.parameters;
  for (std::size_t i = 0; i < order.size(); ++i) {
    Bytes sum = singles.buckets[order[i]].bytes;
    for (std::size_t j = i + 1; j < order.size() && j - i + 1 < order.size(); ++j)
      sizes.push_back((sum += singles.buckets[order[j]].bytes) + 2);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

Plan with_bound(Plan plan, const Problem& problem, const Budget& budget) {
  const StepBound bound = lower_bound(problem, budget.device);
  plan.lower_bound_seconds = bound.seconds;
  plan.bound_by = bound.bound_by;
  return plan;
}

// The automatic policy's plans with one kind of replays. What does not depend on the budget is made when it
// is first asked for.
class ReplaysPlanner {
 public:
  // Keeps references. `graph` is in the units that `replays` may rebuild.
  ReplaysPlanner(const Graph& graph, const Machine& machine, const PlanOptions& options, Replays replays)
      : graph_(graph), machine_(machine), options_(options), replays_(replays) {}

  // Of all bucket sizes, smallest first.
  const std::vector<Problem>& problems() {
    if (!problems_.empty()) return problems_;
    for (Bytes target : bucket_sizes(machine_, options_)) add_problems(target);
    if (options_.bucket_bytes == 0)
      for (Bytes target : sizes_between(graph_, problems_.front().layout)) add_problems(target);
    return problems_;
  }
  const Minimum& least() {
    if (!minimum_) minimum_ = least_minimum(problems());
    return *minimum_;
  }
  // `most`: bytes of a plan that needs no family. `emulated`, asked once: the other systems' problems.
  template <typename MakeEmulated>
  void offer_to(Selection& selection, Offered& offered, Bytes most, MakeEmulated emulated) {
    selection.offer(least().plan);
    if (!family_) family_.emplace(problems(), std::min(least().plan.device_peak_bytes, most), emulated());
    family_->offer_to(selection, offered);
  }
  void match_emulated(Selection& selection) const {
    if (family_) family_->match_emulated(selection);
  }

 private:
  // Unless there are some with the same buckets.
  void add_problems(Bytes target) {
    std::vector<Problem> more = automatic_problems(graph_, machine_, target, options_, replays_);
    if (std::any_of(problems_.begin(), problems_.end(), [&](const Problem& problem) {
          return problem.layout.buckets == more.front().layout.buckets;
        }))
      return;
    std::move(more.begin(), more.end(), std::back_inserter(problems_));
  }

  const Graph& graph_;
  const Machine& machine_;
  const PlanOptions& options_;
  Replays replays_;
  std::vector<Problem> problems_;
  std::optional<Minimum> minimum_;
  std::optional<Family> family_;
};

// What is left of the device budget beside context and libraries.
Budget for_plans(Budget budget, const Machine& machine) {
  if (budget.device != unlimited) budget.device -= std::min(budget.device, machine.overhead_bytes);
  return budget;
}

}  // namespace

// What does not depend on the budget is made when it is first asked for.
class Planner::Parts {
 public:
  Parts(const Graph& graph, const Machine& machine, const PlanOptions& options)
      : graph_(graph),
        machine_(machine),
        options_(options),
        blocks_(with_whole_blocks(graph)),
        chosen_(options.replays == Replays::whole_blocks ? blocks_ : graph_, machine_, options_,
                options.replays) {
    if (options.replays != Replays::whole_blocks && blocks_.unit_names != graph.unit_names)
      whole_.emplace(blocks_, machine_, options_, Replays::whole_blocks);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  std::variant<Plan, Infeasible> plan(const Budget& budget) {
    if (options_.policy == Policy::automatic) return plan_automatic(budget);
    if (options_.policy == Policy::none) return plan_none(budget);
    auto planned = plan_policy(options_.policy, graph_, machine_, budget, options_.bucket_bytes);
    if (auto* plan = std::get_if<Plan>(&planned)) return with_bound(std::move(*plan), single(), budget);
    return planned;
  }
  const Machine& machine() const { return machine_; }

  // Of any order of micro-batches, whatever the options say.
  Bytes need() {
    if (!options_.order) return resident().plan.device_peak_bytes;
    if (!need_) need_ = least_resident(graph_, machine_, {}).plan.device_peak_bytes;
    return *need_;
  }
  Bytes minimum() {
    if (is_emulated(options_.policy))
      return policy_minimum_bytes(options_.policy, graph_, machine_, options_.bucket_bytes);
    const Bytes most = resident().plan.device_peak_bytes;
    return options_.policy == Policy::none ? most : std::min(chosen_.least().plan.device_peak_bytes, most);
  }

 private:
  const Resident& resident() {
    if (!resident_) resident_ = least_resident(graph_, machine_, options_.order);
    return *resident_;
  }
  // With one tensor in each bucket.
  const Problem& single() {
    if (!single_) single_ = std::move(make_problems(graph_, machine_, {.target_bytes = 0}, {}).front());
    return *single_;
  }
  std::unique_ptr<PolicyProblems> emulated() const {  // none of them has another order
    if (options_.order.value_or(MicroBatchOrder::layer_major) != MicroBatchOrder::layer_major) return {};
    return std::make_unique<PolicyProblems>(graph_, machine_, options_.bucket_bytes);
  }

  std::variant<Plan, Infeasible> plan_none(const Budget& budget) {
    const auto& [problem, plan] = resident();
    if (plan.device_peak_bytes > budget.device) {
      const Draft draft = Sketcher(problem, resident_choices(problem)).serial().draft;
      return Infeasible{budget.device, plan.device_peak_bytes, false, tightest_op(problem, draft)};
    }
    if (plan.host_bytes > budget.host)
      return Infeasible{budget.host, plan.host_bytes, true, graph_.op(plan.instructions[plan.gate].op).name};
    return with_bound(plan, problem, budget);
  }

  // Replays within blocks have those of whole blocks beside them, so they are never slower, but by what alike
  // schedules may differ.
  std::variant<Plan, Infeasible> plan_automatic(const Budget& budget) {
    if (minimum() > budget.device) return Infeasible{budget.device, minimum(), false, chosen_.least().op};
    Selection selection = select(budget);
    chosen_.match_emulated(selection);
    if (!selection.best()) return Infeasible{budget.host, selection.least_host(), true, chosen_.least().op};
    const bool chose_whole = options_.replays == Replays::whole_blocks;
    return with_bound(std::move(*selection.best()), chose_whole ? single() : chosen_.problems().front(),
                      budget);
  }
  Selection select(const Budget& budget, double most_seconds = std::numeric_limits<double>::infinity()) {
    const Bytes most = resident().plan.device_peak_bytes;
    Selection selection(budget, !is_small(graph_));
    selection.offer(resident().plan);
    if (selection.best()) selection.best()->policy = "auto";
    Offered offered;
    chosen_.offer_to(selection, offered, most, [&] { return emulated(); });
    const auto none = [] { return std::unique_ptr<PolicyProblems>(); };
    if (whole_) whole_->offer_to(selection, offered, most, none);
    offered.tighten_loose(selection);
    if (selection.is_loose()) settle(selection, offered, most_seconds);
    return selection;
  }
  // A tight plan instead of a loose one that is faster, if not by much: one of those that were offered, or
  // what a budget gets that has no room for the loose one. No slower than that, so that more memory makes no
  // plan slower: of what it gets not all was offered here, where the loose one is faster.
  void settle(Selection& selection, const Offered& offered, double most_seconds) {
    const double seconds = selection.best()->predicted_step_seconds;
    most_seconds = std::min(most_seconds, seconds * (1 + tightening_loss));
    const Budget less{.device = selection.best()->device_peak_bytes - 1, .host = selection.budget().host};
    if (seconds > most_seconds) return;
    std::optional<Plan> below;
    if (less.device >= minimum()) below = std::move(select(less, most_seconds).best());
    const bool is_answer = below && is_tight(*below) && below->predicted_step_seconds <= most_seconds;
    if (!is_answer) offered.lower_fastest(selection);
    const double infinite = std::numeric_limits<double>::infinity();
    selection.settle_for_tight(below ? below->predicted_step_seconds : infinite);
    if (selection.is_loose() && is_answer) selection.give_way_to(std::move(*below));
  }

  const Graph& graph_;
  const Machine& machine_;
  PlanOptions options_;
  std::optional<Resident> resident_;
  std::optional<Bytes> need_;
  std::optional<Problem> single_;
  Graph blocks_;  // with both halves of a block as one unit
  ReplaysPlanner chosen_;
  std::optional<ReplaysPlanner> whole_;  // beside replays within blocks
};

Planner::Planner(const Graph& graph, const Machine& machine, const PlanOptions& options)
    : parts_(std::make_unique<Parts>(graph, machine, options)) {}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

std::variant<Plan, Infeasible> Planner::plan(const Budget& budget) {
  auto planned = parts_->plan(for_plans(budget, parts_->machine()));
  if (auto* infeasible = std::get_if<Infeasible>(&planned); infeasible != nullptr && !infeasible->host) {
    infeasible->budget = budget.device;
    infeasible->minimum += parts_->machine().overhead_bytes;
  }
  return planned;
}
Bytes Planner::need_bytes() { return parts_->need(); }
Bytes Planner::minimum_bytes() { return parts_->minimum(); }

std::variant<Plan, Infeasible> make_plan(const Graph& graph, const Machine& machine, const Budget& budget,
                                         const PlanOptions& options) {
  return Planner(graph, machine, options).plan(budget);
}
Bytes need_bytes(const Graph& graph, const Machine& machine) { return Planner(graph, machine).need_bytes(); }
Bytes minimum_bytes(const Graph& graph, const Machine& machine, const PlanOptions& options) {
  return Planner(graph, machine, options).minimum_bytes();
}

}  // namespace stowage
