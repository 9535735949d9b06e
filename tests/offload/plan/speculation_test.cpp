// The updates that plans begin before the gate, and what plans say of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "offload/plan/problem/settings.h"
#include "stowage/models.h"
#include "stowage/planner.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using ::testing::IsEmpty;

std::int64_t speculated(const Plan& plan) {
  return std::count_if(plan.instructions.begin(), plan.instructions.end(),
                       [](const Instruction& each) { return each.kind == InstructionKind::speculate; });
}

Graph gpt_of(std::int64_t layers, std::int64_t width) {
  GraphBuilder builder;
  const BuiltModel model = gpt(
      builder, {.layers = layers, .width = width, .heads = 2, .vocabulary = 128, .sequence = 32, .batch = 2});
  return builder.finish(model.loss, AdamW{});
}

Machine with_host(double bytes_per_second) {
  Machine machine;
  machine.host_bytes_per_second = bytes_per_second;
  return machine;
}

PlanOptions without_speculation() {
  PlanOptions options;
  options.speculates = false;
  return options;
}

Plan plan_of(const Graph& graph, const Machine& machine, const Budget& budget,
             const PlanOptions& options = {}) {
  const auto result = make_plan(graph, machine, budget, options);
  if (!std::holds_alternative<Plan>(result)) ADD_FAILURE() << "no plan in " << budget.device;
  const Plan plan = std::get<Plan>(result);
  EXPECT_THAT(validate(graph, plan, budget), IsEmpty());
  return plan;
}

constexpr double slow = 2e8;

TEST(Speculation, IsPlannedWhereTheHostIsSlow) {
  const Graph graph = gpt_of(2, 32);
  const Machine machine = with_host(slow);
  const Plan plan = plan_of(graph, machine, {.device = minimum_bytes(graph, machine)});
  const Plan without =
      plan_of(graph, machine, {.device = minimum_bytes(graph, machine)}, without_speculation());
  EXPECT_GT(speculated(plan), 0);
  EXPECT_GT(plan.undo_bytes, 0U);
  EXPECT_LT(plan.predicted_step_seconds, without.predicted_step_seconds);
}

TEST(Speculation, IsNotPlannedWhereItIsSwitchedOff) {
  const Graph graph = gpt_of(2, 32);
  const Machine machine = with_host(slow);
  for (const Bytes budget : {minimum_bytes(graph, machine), need_bytes(graph, machine), unlimited}) {
    const Plan plan = plan_of(graph, machine, {.device = budget}, without_speculation());
    EXPECT_EQ(speculated(plan), 0);
    EXPECT_EQ(plan.undo_bytes, 0U);
    EXPECT_EQ(plan.half_clipped_seconds, plan.predicted_step_seconds);
    EXPECT_EQ(plan.clipped_seconds, plan.predicted_step_seconds);
  }
}

TEST(Speculation, IsNotPlannedWhereTheDeviceUpdates) {
  const Graph graph = gpt_of(2, 32);
  const Plan plan = plan_of(graph, with_host(slow), {}, {.policy = Policy::none});
  EXPECT_EQ(speculated(plan), 0);
  EXPECT_EQ(plan.undo_bytes, 0U);
}

// The fewer steps are clipped, the better.
TEST(Speculation, TakesLongerTheMoreStepsAreClipped) {
  const Graph graph = gpt_of(2, 32);
  for (const double host : {slow, 1e9}) {
    const Machine machine = with_host(host);
    const Plan plan = plan_of(graph, machine, {.device = minimum_bytes(graph, machine)});
    ASSERT_GT(plan.undo_bytes, 0U);
    EXPECT_LE(plan.predicted_step_seconds, plan.half_clipped_seconds);
    EXPECT_LE(plan.predicted_step_seconds, plan.clipped_seconds);
    const double unexpected = simulate(graph, plan, machine, Clipping::unexpected).step_seconds;
    EXPECT_GE(unexpected, plan.clipped_seconds);
    EXPECT_EQ(plan.half_clipped_seconds, (plan.predicted_step_seconds + unexpected) / 2);
    EXPECT_EQ(plan.clipped_seconds, simulate(graph, plan, machine, Clipping::expected).step_seconds);
    EXPECT_EQ(plan.predicted_step_seconds, simulate(graph, plan, machine).step_seconds);
  }
}

// undo_bytes are the records of the instructions, and no more.
TEST(Speculation, CountsItsRecordsAsHostBytes) {
  const Graph graph = gpt_of(2, 32);
  const Machine machine = with_host(slow);
  const Plan plan = plan_of(graph, machine, {.device = minimum_bytes(graph, machine)});
  Bytes records = 0, buckets = 0;
  for (const Instruction& each : plan.instructions)
    if (each.kind == InstructionKind::speculate) records += each.part.bytes();
  for (const Bucket& bucket : plan.buckets) buckets += bucket.on_host() ? bucket.bytes : 0;
  EXPECT_EQ(plan.undo_bytes, records);
  EXPECT_EQ(plan.host_bytes, buckets + records);
}

TEST(Speculation, KeepsTheHostBudget) {
  const Graph graph = gpt_of(2, 32);
  const Machine machine = with_host(slow);
  const Bytes device = minimum_bytes(graph, machine);
  const Plan all = plan_of(graph, machine, {.device = device});
  ASSERT_GT(all.undo_bytes, 0U);
  const auto none = make_plan(graph, machine, {.device = device, .host = 1});
  ASSERT_TRUE(std::holds_alternative<Infeasible>(none));
  const Bytes least = std::get<Infeasible>(none).minimum;
  const Bytes rest = all.host_bytes - all.undo_bytes;
  std::vector<Bytes> budgets{all.host_bytes, all.host_bytes - 1, rest + all.undo_bytes / 2, rest};
  for (Bytes more = 0; more < all.undo_bytes; more += all.undo_bytes / 8) budgets.push_back(least + more);
  for (const Bytes host : budgets) {
    SCOPED_TRACE(host);
    const Plan plan = plan_of(graph, machine, {.device = device, .host = host});
    EXPECT_LE(plan.host_bytes, host);
    EXPECT_GE(plan.predicted_step_seconds, all.predicted_step_seconds * (1 - PlannerSettings{}.close_enough));
  }
}

// A plan need not speculate. But the program decides on speculation together with everything else, and the
// rounding of its solution may turn out better without speculation.
constexpr double luck = 0.04;

TEST(Speculation, IsHardlyEverSlowerThanWithout) {
  int faster = 0, slower = 0;  // by more than close_enough
  const auto expect_no_slower = [&](const Graph& graph, const Machine& machine) {
    const Bytes least = minimum_bytes(graph, machine);
    const Bytes need = std::max(least, need_bytes(graph, machine));
    for (const Bytes budget : {least, least + (need - least) / 3, need}) {
      SCOPED_TRACE(budget);
      const Plan with = plan_of(graph, machine, {.device = budget});
      const Plan without = plan_of(graph, machine, {.device = budget}, without_speculation());
      const double tolerance = 1 + PlannerSettings{}.close_enough;
      EXPECT_LE(with.predicted_step_seconds, without.predicted_step_seconds * (1 + luck));
      if (with.predicted_step_seconds > without.predicted_step_seconds * tolerance) ++slower;
      EXPECT_LE(with.predicted_step_seconds, with.half_clipped_seconds * (1 + 1e-12));
      if (with.predicted_step_seconds * tolerance < without.predicted_step_seconds) ++faster;
    }
  };
  const int cases = testing::draws(8, 1);
  for (int draw = 0; draw < cases; ++draw) {
    SCOPED_TRACE(draw);
    const auto seed = static_cast<std::uint64_t>(draw);
    Machine machine = testing::any_machine(seed);
    machine.host_bytes_per_second = draw % 2 == 0 ? slow : machine.host_bytes_per_second;
    expect_no_slower(gpt_of(1 + draw % 3, 16 + 16 * (draw % 2)), machine);
  }
  EXPECT_GT(faster, slower);
}

}  // namespace
}  // namespace stowage
