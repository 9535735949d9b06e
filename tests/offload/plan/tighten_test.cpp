#include "offload/plan/tighten.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "offload/plan/family.h"
#include "offload/plan/residency.h"
#include "stowage/graph_builder.h"
#include "stowage/models.h"

namespace stowage {
namespace {

// Large enough for the family to tighten its plans.
Graph large_graph() {
  GraphBuilder builder(DataType::bf16);
  const Gpt model = gpt(builder, {.layers = 12, .width = 512, .heads = 8, .sequence = 256, .batch = 4});
  return builder.finish(model.loss, AdamW{});
}
Machine card() {
  Machine machine;
  machine.h2d.bytes_per_second = machine.d2h.bytes_per_second = 12e9;
  machine.h2d_both_bytes_per_second = machine.d2h_both_bytes_per_second = 10e9;
  machine.flops_per_second = 50e12;
  machine.device_bytes_per_second = 800e9;
  machine.host_bytes_per_second = 40e9;
  return machine;
}

// Buckets in the order in which the link brings them.
std::vector<BucketId> loads(const Plan& plan) {
  std::vector<BucketId> loads;
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == InstructionKind::prefetch)
      loads.push_back(plan.lifetimes[instruction.lifetime].bucket);
  return loads;
}

TEST(Tighten, APlanOfTheSameScheduleWithinAHundredth) {
  const Graph graph = large_graph();
  ASSERT_FALSE(is_small(graph));
  const Machine machine = card();
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  int tightened_plans = 0, tight_bounds = 0;
  for (const Choices& choices : minimum_candidates(problem)) {
    const Sketcher sketcher(problem, choices);
    for (const Bytes percent : {110U, 150U, 250U}) {
      Sketch sketch = sketcher.within(sketcher.serial_bytes() * percent / 100);
      time_sketch(problem, sketch, 0.25);
      const Draft& draft = sketch.draft;
      const Plan plan = complete(problem, draft);
      EXPECT_NEAR(sketch.step_seconds, plan.predicted_step_seconds, 0.005 * sketch.step_seconds);
      EXPECT_DOUBLE_EQ(sketch.least_seconds, 0.75 * sketch.step_seconds);
      EXPECT_EQ(plan.host_bytes, host_bytes(problem, draft));
      const double least = least_seconds(problem, draft) * (1 - 1e-9);
      EXPECT_GE(plan.predicted_step_seconds, least);
      tight_bounds += plan.predicted_step_seconds < least * 1.05 ? 1 : 0;
      const auto tight = tightened(problem, draft, plan, 2 * plan.device_peak_bytes, true);
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
  const Graph graph = large_graph();
  const Machine machine = card();
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  const Sketcher sketcher(problem, minimum_candidates(problem).front());
  const Draft draft = sketcher.within(2 * sketcher.serial_bytes()).draft;
  const Plan plan = complete(problem, draft);
  EXPECT_FALSE(tightened(problem, draft, plan, plan.live_peak_bytes - 1, true));
  for (const Bytes percent : {100U, 103U, 110U})
    if (const auto tight = tightened(problem, draft, plan, plan.live_peak_bytes * percent / 100, true)) {
      EXPECT_LE(tight->device_peak_bytes, plan.live_peak_bytes * percent / 100);
    }
}

TEST(Tighten, NoPlanThatTakesAnotherTime) {
  const Graph graph = large_graph();
  const Machine machine = card();
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  int found = 0;
  for (const Choices& choices : minimum_candidates(problem)) {
    const Sketcher sketcher(problem, choices);
    const Draft draft = sketcher.within(sketcher.serial_bytes() * 3 / 2).draft;
    Plan plan = complete(problem, draft);
    const Bytes most = 2 * plan.device_peak_bytes;
    const double seconds = plan.predicted_step_seconds;
    if (!tightened(problem, draft, plan, most, true)) continue;
    ++found;
    for (const double factor :
         {0.9, 1.1}) {  // as if the plan had been faster or slower than any placement makes it
      plan.predicted_step_seconds = factor * seconds;
      EXPECT_FALSE(tightened(problem, draft, plan, most, true)) << factor;
    }
  }
  EXPECT_GT(found, 0);
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

TEST(Tighten, PlansOfLargeGraphsAreTightAndNeverSlowerWithMoreMemory) {
  const Graph graph = large_graph();
  const Machine machine = card();
  Planner planner(graph, machine);
  const Bytes least = planner.minimum_bytes(), need = planner.need_bytes();
  double before = std::numeric_limits<double>::infinity();
  for (Bytes part = 0; part <= 12; ++part) {
    const Bytes budget = least + (need - least) * part * part / 144;
    const auto planned = planner.plan({budget, unlimited});
    ASSERT_TRUE(std::holds_alternative<Plan>(planned)) << part;
    const Plan& plan = std::get<Plan>(planned);
    EXPECT_TRUE(is_tight(plan)) << part << ": " << plan.device_peak_bytes << " for " << plan.live_peak_bytes;
    EXPECT_TRUE(validate(graph, plan, {budget, unlimited}).empty()) << part;
    EXPECT_LE(plan.predicted_step_seconds, before * (1 + 1e-9)) << part;
    before = plan.predicted_step_seconds;
  }
}

}  // namespace
}  // namespace stowage
