#include "tests/offload/oracle/judge.h"
#include "offload/plan/problem/settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/planner.h"
#include "tests/offload/oracle/oracle.h"
#include "tests/offload/oracle/small_graph.h"

namespace stowage::oracle {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr double rounding = 1e-9;

Bytes budget_of(int rung, Bytes minimum, Bytes need) {
  constexpr double parts[rungs] = {-0.15, -0.03, 0, 0.08, 0.2, 0.4, 0.7, 1};
  const double part = parts[rung];
  if (part < 0) return static_cast<Bytes>(static_cast<double>(minimum) * (1 + part));
  const double range = need > minimum ? static_cast<double>(need - minimum) : 0;
  return minimum + static_cast<Bytes>(part * range);
}

int early_updates(const Plan& plan) {
  const auto early = [](const Instruction& each) { return each.kind == InstructionKind::speculate; };
  return static_cast<int>(std::count_if(plan.instructions.begin(), plan.instructions.end(), early));
}

void check(const Graph& graph, const Answer& answer, Verdict& verdict) {
  auto fault = [&](const std::string& what) { verdict.faults.push_back(what); };
  if (verdict.planner < verdict.lower * (1 - rounding)) fault("the planner beats the oracle");
  if (verdict.planner < infinite && verdict.bound > verdict.lower * (1 + rounding))
    fault("the planner's bound is above the oracle's time");
  if (!answer.plan) return;
  for (const std::string& finding : validate(graph, *answer.plan, {verdict.budget, unlimited}))
    fault("the oracle's plan: " + finding);
  if (verdict.oracle < verdict.lower * (1 - rounding))
    fault("the oracle's plan is faster than its own bound");
  if (answer.exact && verdict.oracle > verdict.lower * (1 + rounding))
    fault("the oracle's plan is slower than its schedule");
}

// Judges the plans of `graph` in `order`. `played` has the same ops as a program in that order.
Verdict judge(const Graph& graph, const Graph& played, const Machine& machine, int rung, bool explain,
              std::optional<MicroBatchOrder> order) {
  PlanOptions options{.order = order};
  Verdict verdict;
  verdict.rung = rung;
  verdict.minimum = minimum_bytes(graph, machine, options);
  verdict.need = Planner(graph, machine, options).need_bytes();
  verdict.budget = budget_of(rung, verdict.minimum, verdict.need);

  // No moves of the oracle's.
  own_settings(options).remakes = false;
  own_settings(options).joined_units.clear();
  const auto planned = make_plan(graph, machine, {verdict.budget, unlimited}, options);
  const Plan* plan = std::get_if<Plan>(&planned);
  verdict.planner = plan != nullptr ? plan->predicted_step_seconds : infinite;
  verdict.bound = plan != nullptr ? plan->lower_bound_seconds : 0;

  const Game game(played, machine);
  const Answer answer = ask(game, played, {verdict.budget});
  verdict.lower = answer.lower;
  verdict.exact = answer.exact;
  verdict.oracle = answer.plan ? simulate(played, *answer.plan, machine).step_seconds : infinite;
  if (plan != nullptr) verdict.planner_early = early_updates(*plan);
  if (answer.plan) verdict.oracle_early = early_updates(*answer.plan);
  check(played, answer, verdict);
  if (!explain) return verdict;
  if (answer.lower < infinite && !answer.choice.loads.empty())
    verdict.oracle_choice = game.describe(answer.choice);
  if (plan == nullptr) return verdict;
  const Choice same = game.choice_of(*plan);
  verdict.planner_choice = game.describe(same);
  verdict.same_choices = ask(game, played, {verdict.budget}, {}, &same).lower;
  return verdict;
}

}  // namespace

bool Verdict::lost() const { return planner == infinite && oracle < infinite; }
bool Verdict::judged() const { return planner < infinite && oracle < infinite; }
bool Verdict::open() const { return planner < infinite && oracle == infinite && lower < infinite; }

Verdict judge(std::uint64_t seed, int rung, bool explain) {
  const Instance instance = small_instance(seed);
  Verdict verdict = judge(instance.graph, instance.graph, instance.machine, rung, explain, {});
  verdict.seed = seed;
  verdict.shape = instance.shape;
  return verdict;
}

Verdict judge_two_parts(std::uint64_t seed, int units, int rung) {
  const Instance instance = sized_instance(seed, units);
  const TwoParts two = in_two_parts(instance.graph);
  stowage::check(two.graph);
  Verdict verdict =
      judge(two.graph, two.forwards_first, instance.machine, rung, false, MicroBatchOrder::ahead(2));
  verdict.seed = seed;
  verdict.shape = instance.shape;
  return verdict;
}

}  // namespace stowage::oracle
