#include "offload/plan/tighten.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "offload/plan/residency.h"
#include "offload/plan/selection.h"
#include "tests/offload/plan/large_graph.h"
#include "tests/offload/plan/placed_greedily.h"

namespace stowage {
namespace {

// Buckets in the order in which the link brings them.
std::vector<BucketId> loads(const Plan& plan) {
  std::vector<BucketId> loads;
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == InstructionKind::prefetch)
      loads.push_back(plan.lifetimes[instruction.lifetime].bucket);
  return loads;
}

std::optional<Plan> tight_plan(const Problem& problem, const Draft& draft, const Plan& plan, Bytes most) {
  std::optional<Plan> found = tightened(problem, draft, plan, most, {});
  return found ? found : tightened_thoroughly(problem, draft, plan, most);
}

TEST(Tighten, APlanOfTheSameScheduleWithinAHundredth) {
  const Graph graph = testing::large_graph();
  ASSERT_FALSE(is_small(graph));
  const Machine machine = testing::large_graph_machine();
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  int tightened_plans = 0, tight_bounds = 0;
  for (const Choices& choices : minimum_candidates(problem)) {
    const Sketcher sketcher(problem, choices);
    for (const Bytes percent : {110U, 150U, 250U}) {
      Sketch sketch = sketcher.within(sketcher.serial_bytes() * percent / 100);
      time_sketch(problem, sketch, 0.25);
      const Draft& draft = sketch.draft;
      const Plan plan = testing::placed_greedily(problem, draft);
      EXPECT_NEAR(sketch.step_seconds, plan.predicted_step_seconds, 0.005 * sketch.step_seconds);
      EXPECT_DOUBLE_EQ(sketch.least_seconds, 0.75 * sketch.step_seconds);
      EXPECT_EQ(plan.host_bytes, host_bytes(problem, draft));
      const double least = least_seconds(problem, draft) * (1 - 1e-9);
      EXPECT_GE(plan.predicted_step_seconds, least);
      tight_bounds += plan.predicted_step_seconds < least * 1.05 ? 1 : 0;
      const auto tight = tight_plan(problem, draft, plan, 2 * plan.device_peak_bytes);
      if (!tight || is_tight(plan)) continue;
      EXPECT_GE(tight->predicted_step_seconds, least);
      ++tightened_plans;
      EXPECT_TRUE(is_tight(*tight));
      EXPECT_TRUE(validate(graph, *tight, {unlimited, unlimited}).empty());
      EXPECT_EQ(loads(*tight), loads(plan));
      EXPECT_GE(tight->predicted_step_seconds, plan.predicted_step_seconds * (1 - tightening_gain));
      const bool fits_with_it = tight->device_peak_bytes <= plan.device_peak_bytes;
      EXPECT_LE(tight->predicted_step_seconds,
                plan.predicted_step_seconds * (fits_with_it ? 1 + tightening_change : 1 + 1e-9));
      EXPECT_GE(tight->live_peak_bytes, plan.live_peak_bytes) << "lifetimes only begin earlier";
    }
  }
  EXPECT_GT(tightened_plans, 2);
  EXPECT_GT(tight_bounds, 2);
}

TEST(Tighten, NoPlanAboveTheLimit) {
  const Graph graph = testing::large_graph();
  const Machine machine = testing::large_graph_machine();
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  const Sketcher sketcher(problem, minimum_candidates(problem).front());
  const Draft draft = sketcher.within(2 * sketcher.serial_bytes()).draft;
  const Plan plan = complete(problem, draft);
  EXPECT_FALSE(tight_plan(problem, draft, plan, plan.live_peak_bytes - 1));
  for (const Bytes percent : {100U, 103U, 110U})
    if (const auto tight = tight_plan(problem, draft, plan, plan.live_peak_bytes * percent / 100)) {
      EXPECT_LE(tight->device_peak_bytes, plan.live_peak_bytes * percent / 100);
    }
}

TEST(Tighten, NoPlanThatTakesAnotherTime) {
  const Graph graph = testing::large_graph();
  const Machine machine = testing::large_graph_machine();
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  int found = 0, found_faster = 0;
  for (const Choices& choices : minimum_candidates(problem)) {
    const Sketcher sketcher(problem, choices);
    const Draft draft = sketcher.within(sketcher.serial_bytes() * 3 / 2).draft;
    Plan plan = complete(problem, draft);
    const Bytes most = 2 * plan.device_peak_bytes;
    const double seconds = plan.predicted_step_seconds;
    if (!tight_plan(problem, draft, plan, most)) continue;
    ++found;
    plan.predicted_step_seconds = 0.9 * seconds;  // as if it had been faster than any placement makes it
    EXPECT_FALSE(tight_plan(problem, draft, plan, most));
    plan.predicted_step_seconds = 1.1 * seconds;  // … and slower
    EXPECT_FALSE(tightened_thoroughly(problem, draft, plan, most));
    const auto faster = tightened(problem, draft, plan, most, {});
    if (!faster) continue;
    ++found_faster;
    const double least = faster->predicted_step_seconds * (1 + 1e-6);
    const auto slower = tightened(problem, draft, plan, most, {.least_seconds = least});
    EXPECT_TRUE(!slower || slower->predicted_step_seconds >= least);
  }
  EXPECT_GT(found_faster, 0);
  EXPECT_GT(found, 0);
}

TEST(Tighten, AByteMoreMakesNoSlowerPlan) {
  const Graph graph = testing::large_graph();
  const Machine machine = testing::large_graph_machine();
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  int pairs = 0;
  for (const Choices& choices : minimum_candidates(problem)) {
    const Sketcher sketcher(problem, choices);
    for (const Bytes percent : {110U, 150U, 250U}) {
      const Draft draft = sketcher.within(sketcher.serial_bytes() * percent / 100).draft;
      const Plan plan = testing::placed_greedily(problem, draft);
      if (is_tight(plan)) continue;
      const auto without = tight_plan(problem, draft, plan, plan.device_peak_bytes - 1);
      const auto with = tight_plan(problem, draft, plan, plan.device_peak_bytes);
      if (!without) continue;
      ++pairs;
      ASSERT_TRUE(with);
      EXPECT_LE(with->predicted_step_seconds, without->predicted_step_seconds) << percent;
    }
  }
  EXPECT_GT(pairs, 0);
}

TEST(Tighten, OfPlansThatTakeAsLongATightOneIsKept) {
  Plan loose, tight;
  loose.predicted_step_seconds = tight.predicted_step_seconds = 1;
  loose.live_peak_bytes = tight.live_peak_bytes = 1000;
  loose.device_peak_bytes = 1011;
  tight.device_peak_bytes = 1010;
  ASSERT_TRUE(is_tight(tight) && !is_tight(loose));
  for (const bool tight_first : {false, true}) {
    Selection selection({unlimited, unlimited});
    selection.offer(tight_first ? tight : loose);
    selection.offer(tight_first ? loose : tight);
    EXPECT_EQ(selection.best()->device_peak_bytes, 1010u) << tight_first;
  }
}

// From the largest budget to the smallest, so that what is known from others is of no help.
TEST(Tighten, WhatOtherBudgetsAskedForChangesNoPlanOfALargeGraph) {
  const Graph graph = testing::large_graph();
  const Machine machine = testing::large_graph_machine();
  Planner planner(graph, machine);
  const Bytes least = planner.minimum_bytes(), need = planner.need_bytes();
  for (const Bytes part : {100U, 30U, 8U, 2U, 0U}) {
    const Budget budget{least + (need - least) / 100 * part, unlimited};
    const auto together = planner.plan(budget), alone = make_plan(graph, machine, budget);
    ASSERT_EQ(together.index(), 0U) << part;
    EXPECT_EQ(std::get<Plan>(together), std::get<Plan>(alone)) << part;
  }
}

TEST(Tighten, PlansOfLargeGraphsAreTightAndNeverSlowerWithMoreMemory) {
  const Graph graph = testing::large_graph();
  const Machine machine = testing::large_graph_machine();
  Planner planner(graph, machine);
  const Bytes least = planner.minimum_bytes(), need = planner.need_bytes();
  double before = std::numeric_limits<double>::infinity();
  for (Bytes part = 0; part <= 18; ++part) {
    const Bytes budget = least + (need - least) / 324 * part * part;
    const auto planned = planner.plan({budget, unlimited});
    ASSERT_TRUE(std::holds_alternative<Plan>(planned)) << part;
    const Plan& plan = std::get<Plan>(planned);
    EXPECT_TRUE(is_tight(plan)) << part << ": " << plan.device_peak_bytes << " for " << plan.live_peak_bytes;
    EXPECT_TRUE(validate(graph, plan, {budget, unlimited}).empty()) << part;
    EXPECT_LE(plan.predicted_step_seconds, before * (1 + 1e-9)) << part;
    before = plan.predicted_step_seconds;
  }
}

// Where a loose plan is the fastest, the tight one that it gives way to is no slower than what a smaller
// budget gets, of which not all is offered for the larger one.
TEST(Tighten, NothingThatGivesWayMakesAPlanSlowerThanWithLessMemory) {
  struct Case {
    std::int64_t sequence;
    double link, flops, host;
    std::vector<Bytes> budgets;
  };
  const Case cases[] = {{192, 28e9, 37e12, 30e9, {7'937'279, 7'937'280}},
                        {64, 26e9, 82e12, 40e9, {5'447'679, 5'449'729}}};
  for (const Case& each : cases) {
    GraphBuilder builder(DataType::bf16);
    const Gpt model =
        gpt(builder, {.layers = 13, .width = 512, .heads = 8, .sequence = each.sequence, .batch = 1});
    const Graph graph = builder.finish(model.loss, AdamW{});
    Machine machine = testing::large_graph_machine();
    machine.h2d.bytes_per_second = machine.d2h.bytes_per_second = each.link;
    machine.h2d_both_bytes_per_second = machine.d2h_both_bytes_per_second = each.link * 10 / 12;
    machine.flops_per_second = each.flops;
    machine.host_bytes_per_second = each.host;
    Planner planner(graph, machine);
    double before = std::numeric_limits<double>::infinity();
    for (const Bytes budget : each.budgets) {
      const auto planned = planner.plan({budget, unlimited});
      ASSERT_TRUE(std::holds_alternative<Plan>(planned)) << budget;
      const Plan& plan = std::get<Plan>(planned);
      EXPECT_LE(plan.predicted_step_seconds, before * (1 + 1e-9)) << budget;
      before = plan.predicted_step_seconds;
    }
  }
}

}  // namespace
}  // namespace stowage
