// The Planner: who answers which policy, and with what budget. planner.h has the promises that it keeps.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>

#include "offload/plan/bound/bound.h"
#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/decisions/prices.h"
#include "offload/plan/policies/policies.h"
#include "offload/plan/problem/settings.h"
#include "offload/plan/problem/units.h"
#include "offload/plan/schedule/places.h"
#include "offload/plan/search/cells.h"
#include "src/graph/update_ops.h"
#include "stowage/error.h"
#include "stowage/planner.h"

namespace stowage {
namespace {

// Returns a problem for each order of micro-batches that `wanted` allows.
using WantedOrder = std::optional<MicroBatchOrder>;
std::vector<Problem> make_problems(const Graph& graph, const Machine& machine, const BucketOptions& options,
                                   WantedOrder wanted, const std::stop_token& stop, EarlyUpdates early) {
  std::vector<Problem> problems;
  std::vector<MicroBatchOrder> possible = possible_orders(graph);
  if (wanted && is_far_ahead(graph, *wanted)) possible = {*wanted};
  for (MicroBatchOrder order : possible)
    if (!wanted || *wanted == order || possible.size() == 1)
      problems.push_back(make_problem(graph, machine, options, order, stop, early));
  return problems;
}
EarlyUpdates early_updates(const PlanOptions& options) {
  return options.optimizer_in_backward ? EarlyUpdates::final : EarlyUpdates::undoable;
}
// Returns the automatic policy's problems: one for each bucket size, smallest first, and each order. `units`
// is the graph in the units that `replays` may rebuild.
std::vector<Problem> automatic_problems(const Graph& units, const Machine& machine,
                                        const PlanOptions& options, const PlannerSettings& settings,
                                        Replays replays) {
  std::vector<Bytes> sizes{options.bucket_bytes};
  if (options.bucket_bytes == 0 && settings.efficient_buckets)
    sizes.push_back(efficient_bucket_bytes(machine));
  std::vector<Problem> problems;
  for (const Bytes size : sizes) {
    std::vector<Problem> more = make_problems(units, machine, {.target_bytes = size}, options.order,
                                              options.stop, early_updates(options));
    if (!problems.empty() && problems.front().layout.buckets == more.front().layout.buckets) continue;
    std::move(more.begin(), more.end(), std::back_inserter(problems));
  }
  if (replays == Replays::whole_blocks)
    for (Problem& problem : problems) problem.items = whole_unit_items(problem.items);
  return problems;
}
PlannerSettings settings_of(const PlanOptions& options) {
  PlannerSettings settings = options.settings ? *options.settings : PlannerSettings{};
  settings.speculates &= options.speculates;
  return settings;
}
Plan resident_plan(const Problem& problem) {
  Choices choices = resident_choices(problem);
  // The schedule is serial, so that *need* depends on no rate.
  Plan plan = complete(problem, Sketcher(problem, choices).serial().draft);
  plan.policy = "none";
  return plan;
}

// The plan with everything on the device, in the order that needs least memory. Without transfers all orders
// take the same time.
struct Resident {
  Problem problem;
  Plan plan;
};
Resident least_resident(const Graph& graph, const Machine& machine, WantedOrder wanted,
                        const std::stop_token& stop) {
  const BucketOptions options{.target_bytes = 0, .group_gradients = false};
  std::vector<Problem> problems =
      make_problems(graph, machine, options, wanted, stop, EarlyUpdates::undoable);
  std::vector<Plan> plans;
  for (const Problem& problem : problems) plans.push_back(resident_plan(problem));
  const auto least = std::min_element(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) {
    return a.device_peak_bytes < b.device_peak_bytes;
  });
  return {std::move(problems[static_cast<std::size_t>(least - plans.begin())]), std::move(*least)};
}

// The plan of least device memory, which depends on no rate of the machine, and the op that needs most
// memory in it.
struct Minimum {
  Plan plan;
  std::string op;
};
Minimum minimum_plan(const Problem& problem) {
  std::optional<Minimum> least;
  for (const Choices& choices : minimum_candidates(problem)) {
    const Sketch sketch = Sketcher(problem, choices).serial();
    if (least && sketch.live_peak_bytes >= least->plan.device_peak_bytes) continue;
    Plan plan = placed_low(problem, sketch.draft);
    if (!least || plan.device_peak_bytes < least->plan.device_peak_bytes)
      least = Minimum{std::move(plan), tightest_op(problem, sketch.draft)};
  }
  least->plan.policy = "auto";
  return std::move(*least);
}
// Returns the minimum over all orders, with the smallest buckets.
Minimum least_minimum(const std::vector<Problem>& problems) {
  Minimum least = minimum_plan(problems.front());
  for (std::size_t i = 1; i < problems.size(); ++i) {
    if (problems[i].layout.target_bytes != problems.front().layout.target_bytes) break;
    Minimum other = minimum_plan(problems[i]);
    if (other.plan.device_peak_bytes < least.plan.device_peak_bytes) least = std::move(other);
  }
  return least;
}

Plan with_bound(Plan plan, const Problem& problem, const Budget& budget) {
  const StepBound bound = lower_bound(problem, budget);
  plan.lower_bound_seconds = bound.seconds;
  plan.bound_by = bound.bound_by;
  return plan;
}

// The plans of all emulated systems, as they are and without what holds them back: the automatic policy is
// never slower than one of them that fits. Each plan is made when it is first needed.
class EmulatedPlans {
 public:
  // Keeps a reference: `problems` must outlive it.
  explicit EmulatedPlans(PolicyProblems& problems) {
    for (PolicyMember& member : all_policy_members(problems)) members_.push_back({std::move(member)});
  }

  void improve(const Budget& budget, const PlannerSettings& settings, std::optional<RankedPlan>& best) {
    for (Member& member : members_) {
      if (!member.live_bytes) look_at(member);
      if (*member.live_bytes > budget.device || (best && member.least_seconds >= best->ranked_seconds))
        continue;
      if (!member.plan) {
        Plan plan = policy_plan(member.of);
        plan.policy = to_string(Policy::automatic);
        member.plan = ranked(std::move(plan), *member.of.problem, settings);
      }
      const RankedPlan& plan = *member.plan;
      const bool fits = plan.plan.device_peak_bytes <= budget.device && plan.plan.host_bytes <= budget.host;
      if (fits && (!best || plan.ranked_seconds < best->ranked_seconds)) best = plan;
    }
  }

  // Returns the fewest host bytes of the plans made so far that fit into `device`; unlimited if none fits.
  // All plans have been made once `improve` has found none.
  Bytes least_host(Bytes device) const {
    Bytes least = unlimited;
    for (const Member& member : members_)
      if (member.plan && member.plan->plan.device_peak_bytes <= device)
        least = std::min(least, member.plan->plan.host_bytes);
    return least;
  }

 private:
  struct Member {
    PolicyMember of;
    std::optional<Bytes> live_bytes{};
    double least_seconds = 0;  // no plan of the member takes less
    std::optional<RankedPlan> plan{};
  };
  static void look_at(Member& member) {
    const Sketch sketch = policy_sketch(member.of);
    member.live_bytes = sketch.live_peak_bytes;
    member.least_seconds = policy_least_seconds(member.of, sketch.draft);
  }

  std::vector<Member> members_;
};

}  // namespace

// The parts of a planner. Parts that do not depend on the budget are made when they are first asked for.
// Device bytes here are an arena's.
class Planner::Parts {
 public:
  Parts(const Graph& graph, const Machine& machine, const PlanOptions& options)
      : graph_(graph),
        machine_(machine),
        options_(options),
        settings_(settings_of(options)),
        policy_problems_(graph, machine, options.bucket_bytes, options.stop) {
    if (options.order) require_possible(graph, *options.order);
    if (!options.optimizer_in_backward) return;
    require_no_clipping(graph);
    if (options.policy != Policy::automatic)
      throw InvalidInput(
          fmt::format("the optimizer cannot run in backward with the policy {}: leave one of them out",
                      to_string(options.policy)));
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  std::variant<Plan, Infeasible> plan(const Budget& budget) {
    is_complete_ = true;
    if (options_.policy == Policy::automatic) return plan_automatic(budget);
    if (options_.policy == Policy::none) return plan_none(budget);
    auto planned = plan_policy(options_.policy, policy_problems_, budget);
    if (auto* plan = std::get_if<Plan>(&planned)) return with_bound(std::move(*plan), single(), budget);
    return planned;
  }
  bool fits(const Budget& budget) {
    if (options_.policy != Policy::automatic) return std::holds_alternative<Plan>(plan(budget));
    if (minimum() > budget.device) return false;
    std::optional<RankedPlan> some;
    offer(resident().plan, resident().problem, budget, some);
    offer(least().plan, problems().front(), budget, some);
    if (!some) some = cells().any(budget, settings_.fits_patience);
    if (EmulatedPlans* others = some ? nullptr : emulated()) others->improve(budget, settings_, some);
    return some.has_value();
  }
  // Returns whether the last plan() was complete (Answer::is_complete).
  bool is_complete() const { return is_complete_; }
  PlanPrice price_of(const Plan& plan) const { return stowage::price_of(plan, graph_, machine_, settings_); }
  const Machine& machine() const { return machine_; }

  // Returns the need over all orders that the policy chooses from, unless the options name another one.
  Bytes need() {
    if (!options_.order || is_far_ahead(graph_, *options_.order)) return resident().plan.device_peak_bytes;
    if (!need_) need_ = least_resident(graph_, machine_, {}, options_.stop).plan.device_peak_bytes;
    return *need_;
  }
  Bytes minimum() {
    if (is_emulated(options_.policy)) return policy_minimum_bytes(options_.policy, policy_problems_);
    const Bytes most = resident().plan.device_peak_bytes;
    return options_.policy == Policy::none ? most : std::min(least().plan.device_peak_bytes, most);
  }

 private:
  bool rebuilds_whole_blocks() const { return options_.replays == Replays::whole_blocks; }
  const Resident& resident() {
    if (!resident_) resident_ = least_resident(graph_, machine_, options_.order, options_.stop);
    return *resident_;
  }
  // Returns the problem with one tensor in each bucket, for the lower bound.
  const Problem& single() {
    const bool is_far = options_.order && is_far_ahead(graph_, *options_.order);
    if (!single_)
      single_ = make_problem(graph_, machine_, {.target_bytes = 0},
                             is_far ? *options_.order : MicroBatchOrder::layer_major, options_.stop,
                             early_updates(options_));
    return *single_;
  }
  // Returns the problems with the options' replays, then those of joined units, then those of whole blocks.
  const std::vector<Problem>& problems() {
    if (!problems_.empty()) return problems_;
    const Graph& units = rebuilds_whole_blocks() ? policy_problems_.graph() : graph_;
    std::vector<Problem> made = automatic_problems(units, machine_, options_, settings_, options_.replays);
    chosen_ = made.size();
    if (!rebuilds_whole_blocks()) {
      add_joined(made);
      add_whole_blocks(made);
    }
    return problems_ = std::move(made);
  }
  void add_whole_blocks(std::vector<Problem>& problems) {
    const Graph& blocks = policy_problems_.graph();
    if (!settings_.whole_blocks || blocks.unit_names == graph_.unit_names) return;
    for (Problem& problem : automatic_problems(blocks, machine_, options_, settings_, Replays::whole_blocks))
      problems.push_back(std::move(problem));
  }
  // Adds problems of the graph in joined units, if there is one micro-batch and at least
  // PlannerSettings::crossing_share of the activations' bytes cross units.
  void add_joined(std::vector<Problem>& problems) {
    if (graph_.micro_batches > 1 || crossing_share(problems.front().items) < settings_.crossing_share) return;
    joined_.clear();
    for (const std::uint32_t count : settings_.joined_units) {
      joined_.push_back(std::make_unique<Graph>(with_joined_units(graph_, count)));
      problems.push_back(make_problem(*joined_.back(), machine_, {.target_bytes = options_.bucket_bytes},
                                      MicroBatchOrder::layer_major, options_.stop, early_updates(options_)));
    }
  }
  const Minimum& least() {
    if (!minimum_) {
      problems();
      minimum_ = least_minimum({problems_.begin(), problems_.begin() + static_cast<std::ptrdiff_t>(chosen_)});
    }
    return *minimum_;
  }
  Cells& cells() {
    if (!cells_)
      cells_.emplace(problems(), single(), minimum(), resident().plan.device_peak_bytes, settings_);
    return *cells_;
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

  std::variant<Plan, Infeasible> plan_automatic(const Budget& budget) {
    if (minimum() > budget.device) return Infeasible{budget.device, minimum(), false, least().op};
    std::optional<RankedPlan> best = found(budget);
    if (!best) best = fastest_of_few(budget);
    if (!best) {
      const FewestHost& fewest = fewest_in(budget.device);
      return Infeasible{budget.host, fewest.bytes, true, least().op, fewest.at_most};
    }
    Plan plan = with_bound(std::move(best->plan), single(), budget);
    is_complete_ |= plan.lower_bound_seconds >= best->ranked_seconds * (1 - settings_.close_enough);
    return plan;
  }
  // Returns the plan that the search for the fastest finds. Requires device memory of at least the minimum.
  std::optional<RankedPlan> found(const Budget& budget) {
    std::optional<RankedPlan> best;
    offer(resident().plan, resident().problem, budget, best);
    offer(least().plan, problems().front(), budget, best);
    is_complete_ = cells().improve(budget, best);
    if (EmulatedPlans* others = emulated()) others->improve(budget, settings_, best);
    return best;
  }
  void offer(const Plan& plan, const Problem& problem, const Budget& budget,
             std::optional<RankedPlan>& best) {
    if (plan.device_peak_bytes > budget.device || plan.host_bytes > budget.host) return;
    RankedPlan offered = ranked(plan, problem, settings_);
    offered.plan.policy = to_string(Policy::automatic);
    if (!best || offered.ranked_seconds < best->ranked_seconds) best = std::move(offered);
  }
  // Returns the fastest plan of few host bytes, for a budget in which the search finds none.
  std::optional<RankedPlan> fastest_of_few(const Budget& budget) {
    std::optional<RankedPlan> best;
    for (const RankedPlan& plan : fewest_in(budget.device).plans)
      if (plan.plan.host_bytes <= budget.host && (!best || plan.ranked_seconds < best->ranked_seconds))
        best = plan;
    return best;
  }
  const FewestHost& fewest_in(Bytes device) {
    const auto known = fewest_.find(device);
    if (known != fewest_.end()) return known->second;
    std::vector<Bytes> others{least().plan.host_bytes};
    if (resident().plan.device_peak_bytes <= device) others.push_back(resident().plan.host_bytes);
    if (EmulatedPlans* of_others = emulated()) others.push_back(of_others->least_host(device));
    Cells cells(problems(), single(), minimum(), resident().plan.device_peak_bytes, settings_);
    return fewest_[device] = fewest_host(cells, device, others);
  }
  // Returns null if the options ask for an order that no emulated system has.
  EmulatedPlans* emulated() {
    if (options_.order.value_or(MicroBatchOrder::layer_major) != MicroBatchOrder::layer_major) return nullptr;
    if (!emulated_) emulated_.emplace(policy_problems_);
    return &*emulated_;
  }

  const Graph& graph_;
  const Machine& machine_;
  PlanOptions options_;
  PlannerSettings settings_;
  std::optional<Resident> resident_;
  std::optional<Bytes> need_;
  std::optional<Problem> single_;
  PolicyProblems policy_problems_;  // also owns the graph in whole blocks
  std::vector<std::unique_ptr<Graph>> joined_;
  std::vector<Problem> problems_;
  std::size_t chosen_ = 0;  // the first chosen_ of problems_ have the options' replays
  std::optional<Minimum> minimum_;
  std::optional<Cells> cells_;
  std::map<Bytes, FewestHost> fewest_;  // fewest host bytes, by device memory
  std::optional<EmulatedPlans> emulated_;
  bool is_complete_ = true;
};

Planner::Planner(const Graph& graph, const Machine& machine, const PlanOptions& options)
    : parts_(std::make_unique<Parts>(graph, machine, options)) {}
Planner::~Planner() = default;
Planner::Planner(Planner&&) noexcept = default;
Planner& Planner::operator=(Planner&&) noexcept = default;

// Converts between budgets, which include the overhead, and arenas, which do not.
Answer Planner::answer(const Budget& budget) {
  const Machine& machine = parts_->machine();
  Answer answer{parts_->plan({machine.arena_in(budget.device), budget.host}), need_bytes(), minimum_bytes()};
  if (const auto* plan = std::get_if<Plan>(&answer.outcome)) {
    answer.peak = machine.budget_for(plan->device_peak_bytes);
    answer.price = parts_->price_of(*plan);
    answer.is_complete = parts_->is_complete();
  } else if (auto& refusal = std::get<Infeasible>(answer.outcome); !refusal.host) {
    refusal.budget = budget.device;
    refusal.minimum = machine.budget_for(refusal.minimum);
  }
  return answer;
}
bool Planner::fits(const Budget& budget) {
  return parts_->fits({parts_->machine().arena_in(budget.device), budget.host});
}
Bytes Planner::need_bytes() { return parts_->machine().budget_for(parts_->need()); }
Bytes Planner::minimum_bytes() { return parts_->machine().budget_for(parts_->minimum()); }

std::variant<Plan, Infeasible> make_plan(const Graph& graph, const Machine& machine, const Budget& budget,
                                         const PlanOptions& options) {
  return Planner(graph, machine, options).answer(budget).outcome;
}
Bytes need_bytes(const Graph& graph, const Machine& machine) { return Planner(graph, machine).need_bytes(); }
Bytes minimum_bytes(const Graph& graph, const Machine& machine, const PlanOptions& options) {
  return Planner(graph, machine, options).minimum_bytes();
}

}  // namespace stowage
