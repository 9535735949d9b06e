#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "offload/recompute/recompute.h"
#include "stowage/error.h"
#include "stowage/planner.h"
#include "tests/support/chain_graph.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

std::string joined(const std::vector<std::string>& findings) {
  std::string text;
  for (const std::string& finding : findings) text += finding + "\n";
  return text;
}

const Plan& plan_of(const std::variant<Plan, Infeasible>& result) {
  if (const auto* none = std::get_if<Infeasible>(&result))
    ADD_FAILURE() << "infeasible: needs " << none->minimum << " for " << none->op;
  return std::get<Plan>(result);
}

constexpr std::uint64_t graphs = testing::draws<std::uint64_t>(250, 5);

// Every budget from the minimum up gives a valid plan that keeps it; one byte less gives Infeasible.
TEST(MakePlan, RandomGraphsPlanIntoValidPlansAtEveryBudgetFromTheirMinimumUp) {
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Graph graph = testing::random_graph(seed);
    Machine machine = testing::any_machine(seed);
    PlanOptions options{.policy = Policy::automatic,
                        .bucket_bytes = seed % 3 == 0 ? Bytes{4096} << (seed % 5) : 0};
    Bytes least = minimum_bytes(graph, machine, options);
    Bytes need = need_bytes(graph, machine);
    std::vector<Bytes> budgets{least, testing::random_budget(seed, least, need), std::max(need, least)};
    std::sort(budgets.begin(), budgets.end());
    for (Bytes budget : budgets) {
      auto result = make_plan(graph, machine, {budget, unlimited}, options);
      const Plan& plan = plan_of(result);
      ASSERT_EQ(joined(validate(graph, plan, {budget, unlimited})), "") << "budget " << budget;
      ASSERT_LE(plan.device_peak_bytes, budget);
    }
    auto below = make_plan(graph, machine, {least - 1, unlimited}, options);
    ASSERT_TRUE(std::holds_alternative<Infeasible>(below));
    ASSERT_EQ(std::get<Infeasible>(below).minimum, least);
    ASSERT_FALSE(std::get<Infeasible>(below).host);
    ASSERT_NE(std::get<Infeasible>(below).op, "");
  }
}

// The bytes that no plan can do without while one op runs, tensor by tensor (in the arena's units of
// alignment) and without the planner's buckets: the op's own operands; forward values still wanted by later
// forward ops; in backward, the values of the unit's replay, gradients under way, and values that cross units
// from their first late use to their last.
class LeastMemory {
 public:
  explicit LeastMemory(const Graph& graph) : graph_(graph), analysis_(analyse_recompute(graph)) { unroll(); }

  Bytes bytes() const {
    std::map<std::pair<TensorId, int>, std::pair<std::size_t, std::size_t>> spans;  // (group, part) -> steps
    std::vector<int> part(graph_.tensors.size(), 0);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      for (TensorId id : operands(steps_[i].op)) {
        TensorId group = analysis_.group[id];
        bool anew = is_loaded(id) || (steps_[i].late && !late_before(group, i) && leaves(group));
        if (anew) ++part[group];
        auto [it, fresh] = spans.try_emplace({group, part[group]}, i, i);
        if (!fresh) it->second.second = i;
      }
    }
    std::vector<Bytes> live(steps_.size(), 0);
    for (const auto& [key, span] : spans)
      for (std::size_t i = span.first; i <= span.second; ++i)
        live[i] += align_up(graph_.tensor(key.first).bytes(), Plan{}.alignment);
    return *std::max_element(live.begin(), live.end());
  }

 private:
  struct Step {
    OpId op;
    bool late;
  };
  void unroll() {
    std::vector<bool> replayed(analysis_.units.size(), false);
    for (OpId op = 0; op < graph_.ops.size(); ++op) {
      const Op& description = graph_.op(op);
      if (description.phase == Phase::update) continue;
      bool late = description.phase == Phase::backward;
      if (late && !replayed[description.unit]) {
        replayed[description.unit] = true;
        for (OpId replay : analysis_.units[description.unit].ops) steps_.push_back({replay, true});
      }
      steps_.push_back({op, late});
    }
  }
  std::vector<TensorId> operands(OpId op) const {
    std::vector<TensorId> ids = graph_.op(op).reads;
    ids.insert(ids.end(), graph_.op(op).writes.begin(), graph_.op(op).writes.end());
    std::sort(ids.begin(), ids.end(),
              [&](TensorId a, TensorId b) { return analysis_.group[a] < analysis_.group[b]; });
    auto same = [&](TensorId a, TensorId b) { return analysis_.group[a] == analysis_.group[b]; };
    ids.erase(std::unique(ids.begin(), ids.end(), same), ids.end());
    return ids;
  }
  bool is_loaded(TensorId id) const {
    TensorKind kind = graph_.tensor(id).kind;
    return kind == TensorKind::parameter || kind == TensorKind::input;
  }
  bool late_before(TensorId group, std::size_t end) const {
    for (std::size_t i = 0; i < end; ++i)
      if (steps_[i].late)
        for (TensorId id : operands(steps_[i].op))
          if (analysis_.group[id] == group) return true;
    return false;
  }
  bool replayed(TensorId group) const {
    return std::any_of(steps_.begin(), steps_.end(), [&](const Step& step) {
      if (!step.late || graph_.op(step.op).phase != Phase::forward) return false;
      const std::vector<TensorId>& writes = graph_.op(step.op).writes;
      return std::any_of(writes.begin(), writes.end(),
                         [&](TensorId id) { return analysis_.group[id] == group; });
    });
  }
  // Returns whether a value is made in forward and not kept through to backward, but rebuilt or moved away.
  bool leaves(TensorId group) const {
    if (!analysis_.boundary[group] && !replayed(group)) return false;
    for (std::size_t i = 0; i < steps_.size() && !steps_[i].late; ++i)
      for (TensorId id : operands(steps_[i].op))
        if (analysis_.group[id] == group) return true;
    return false;
  }

  const Graph& graph_;
  RecomputeAnalysis analysis_;
  std::vector<Step> steps_;
};

TEST(MakePlan, TheMinimumIsAtMostAQuarterAboveWhatMustBeLive) {
  double worst = 0;
  for (std::uint64_t seed = 0; seed < graphs; ++seed) {
    Graph graph = testing::random_graph(seed);
    Machine machine = testing::any_machine(seed);
    double ratio =
        static_cast<double>(minimum_bytes(graph, machine)) / static_cast<double>(LeastMemory(graph).bytes());
    worst = std::max(worst, ratio);
    EXPECT_LE(ratio, 1.25) << "seed " << seed;
  }
  RecordProperty("worst_ratio", std::to_string(worst));
}

TEST(MakePlan, ThePlanIsAPureFunctionOfItsInputs) {
  for (std::uint64_t seed = 0; seed < testing::draws<std::uint64_t>(20, 2); ++seed) {
    Graph graph = testing::random_graph(seed);
    Machine machine = testing::any_machine(seed);
    Budget budget{testing::random_budget(seed, minimum_bytes(graph, machine), need_bytes(graph, machine)),
                  unlimited};
    EXPECT_EQ(plan_of(make_plan(graph, machine, budget)), plan_of(make_plan(graph, machine, budget)));
  }
}

TEST(MakePlan, NeedAndMinimumDependOnNoRate) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Graph graph = testing::random_graph(seed);
    Machine a = testing::random_machine(1);
    Machine b = testing::random_machine(2);
    EXPECT_EQ(need_bytes(graph, a), need_bytes(graph, b));
    EXPECT_EQ(minimum_bytes(graph, a), minimum_bytes(graph, b));
  }
}

// Context and libraries hold a part of the budget that no plan can have.
TEST(MakePlan, OverheadCountsAgainstTheDeviceBudget) {
  Graph graph = testing::chain_graph({.units = 4});
  Machine machine;
  machine.overhead_bytes = 1000;
  for (Policy policy : {Policy::automatic, Policy::none, Policy::checkpoint}) {
    PlanOptions options{.policy = policy};
    const Bytes arena = minimum_bytes(graph, Machine{}, options);
    Planner planner(graph, machine, options);
    const Answer fits = planner.answer({.device = arena + 1000});
    ASSERT_TRUE(std::holds_alternative<Plan>(fits.outcome));
    EXPECT_EQ(std::get<Plan>(fits.outcome).device_peak_bytes, arena);
    EXPECT_EQ(fits.minimum, arena + 1000);
    EXPECT_EQ(fits.minimum, minimum_bytes(graph, machine, options));
    EXPECT_EQ(fits.peak, arena + 1000);
    EXPECT_EQ(fits.need, need_bytes(graph, Machine{}) + 1000);
    EXPECT_EQ(fits.need, need_bytes(graph, machine));
    for (Bytes budget : {arena + 999, Bytes{500}}) {
      const Answer refused = planner.answer({.device = budget});
      ASSERT_TRUE(std::holds_alternative<Infeasible>(refused.outcome));
      EXPECT_EQ(std::get<Infeasible>(refused.outcome).budget, budget);
      EXPECT_EQ(std::get<Infeasible>(refused.outcome).minimum, fits.minimum);
      EXPECT_EQ(refused.minimum, fits.minimum);
      EXPECT_EQ(refused.need, fits.need);
      EXPECT_EQ(refused.peak, 0U);
    }
    // The same arena has the same step and bound.
    const Plan bare = plan_of(make_plan(graph, Machine{}, {.device = arena}, options));
    EXPECT_EQ(std::get<Plan>(fits.outcome), bare);
  }
}

TEST(Machine, ABudgetIsAnArenaAndTheOverhead) {
  Machine machine;
  machine.overhead_bytes = 1000;
  EXPECT_EQ(machine.budget_for(24), 1024U);
  EXPECT_EQ(machine.arena_in(1024), 24U);
  EXPECT_EQ(machine.arena_in(999), 0U);
  EXPECT_EQ(machine.arena_in(unlimited), unlimited);
  EXPECT_EQ(machine.budget_for(unlimited), unlimited);
}

TEST(MakePlan, PolicyNoneMovesOnlyInputsAndScalarsAndKeepsTheOptimizerOnTheDevice) {
  Graph graph = testing::chain_graph({.units = 3, .parameter_elements = 1 << 16});
  Machine machine;
  PlanOptions none{.policy = Policy::none};
  Bytes need = need_bytes(graph, machine);
  auto result = make_plan(graph, machine, {need, unlimited}, none);
  const Plan& plan = plan_of(result);
  EXPECT_EQ(joined(validate(graph, plan, {need, unlimited})), "");
  EXPECT_EQ(plan.device_peak_bytes, need);
  EXPECT_EQ(plan.h2d_bytes, 64U + 16U);     // tokens, clip
  EXPECT_EQ(plan.d2h_bytes, 3U * 8U + 8U);  // three parts of the norm, loss
  EXPECT_GE(need, Bytes{3} * 3 * (1 << 18));
  auto below = make_plan(graph, machine, {need - 1, unlimited}, none);
  ASSERT_TRUE(std::holds_alternative<Infeasible>(below));
  EXPECT_EQ(std::get<Infeasible>(below).minimum, need);
}

TEST(MakePlan, TooLittleHostMemoryIsInfeasibleAndSaysHowMuchWouldDo) {
  Graph graph = testing::chain_graph({.units = 3, .parameter_elements = 1 << 16});
  Machine machine;
  Bytes device = minimum_bytes(graph, machine);
  auto result = make_plan(graph, machine, {device, 1000});
  ASSERT_TRUE(std::holds_alternative<Infeasible>(result));
  const Infeasible& none = std::get<Infeasible>(result);
  EXPECT_TRUE(none.host);
  EXPECT_TRUE(std::holds_alternative<Plan>(make_plan(graph, machine, {device, none.minimum})));
  EXPECT_TRUE(std::holds_alternative<Infeasible>(make_plan(graph, machine, {device, none.minimum - 1})));
}

// No op reads the result of the last backward op, and still the gate stands behind that op.
TEST(MakePlan, TheGateWaitsForTheEndOfBackward) {
  Graph graph = testing::chain_graph({.units = 2});
  graph.tensors.push_back({"unread", DataType::f32, {64}, TensorKind::activation, {}});
  OpId last = testing::find_op(graph, "square0");
  Op op = graph.ops[testing::find_op(graph, "embed")];
  op.name = "trailing";
  op.phase = Phase::backward;
  op.unit = graph.ops[last].unit;
  op.writes = {static_cast<TensorId>(graph.tensors.size() - 1)};
  graph.ops.insert(graph.ops.begin() + last + 1, op);
  Machine machine;
  for (Bytes budget : {minimum_bytes(graph, machine), unlimited}) {
    const Plan plan = plan_of(make_plan(graph, machine, {budget, unlimited}));
    EXPECT_EQ(joined(validate(graph, plan, {budget, unlimited})), "");
    InstructionId trailing = no_id;
    for (InstructionId id = 0; id < plan.gate; ++id)
      if (plan.instructions[id].lane == LaneRole::compute) trailing = id;
    ASSERT_EQ(plan.instructions[trailing].op, last + 1);
    const std::vector<Wait>& waits = plan.instructions[plan.gate].waits;
    EXPECT_NE(std::find(waits.begin(), waits.end(), Wait{trailing, 0}), waits.end());
  }
}

TEST(MakePlan, TransfersAreAccountedInWholeBuckets) {
  Graph graph =
      testing::chain_graph({.units = 2, .activation_elements = 1 << 14, .parameter_elements = 1 << 14});
  Machine machine;
  auto result = make_plan(graph, machine, {minimum_bytes(graph, machine), unlimited});
  const Plan& plan = plan_of(result);
  Bytes h2d = 0, d2h = 0;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.lifetime == no_id) continue;
    Bytes bytes = plan.buckets[plan.lifetimes[instruction.lifetime].bucket].bytes;
    (instruction.lane == LaneRole::h2d ? h2d : d2h) += bytes;
  }
  EXPECT_EQ(plan.h2d_bytes, h2d);
  EXPECT_EQ(plan.d2h_bytes, d2h);
}

TEST(MakePlan, AGraphThatTrainsNothingIsRefused) {
  Graph graph = testing::chain_graph();
  graph.ops.resize(5);
  graph.clip = no_id;
  EXPECT_THROW(make_plan(graph, Machine{}, Budget{}), InvalidInput);
}

}  // namespace
}  // namespace stowage
