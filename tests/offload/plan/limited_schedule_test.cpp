#include "offload/plan/limited_plans.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "offload/plan/residency.h"
#include "tests/support/chain_graph.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

Graph chain() {
  return testing::chain_graph({.units = 4, .activation_elements = 1 << 14, .parameter_elements = 1 << 14});
}

// (Of activations that go to the host the distances keep some: those whose transfers would touch.)
TEST(LimitedSchedule, WithoutALimitItLoadsAsFastAsAnyDistance) {
  const Graph graph = chain();
  const Machine machine;
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  const LimitedScheduler scheduler(problem);
  for (LoadChoice load : {LoadChoice::each_op, LoadChoice::each_unit, LoadChoice::held}) {
    Choices choices = resident_choices(problem);
    std::fill(choices.loads.begin(), choices.loads.end(), load);
    const auto sketch = scheduler.run(choices, unlimited);
    ASSERT_TRUE(sketch);
    for (std::uint32_t distance : {0U, 2U, 32U}) {
      Sketch ahead = Sketcher(problem, choices).ahead(distance);
      time_sketch(problem, ahead, 0);
      EXPECT_LE(sketch->seconds, ahead.step_seconds * (1 + 1e-9));
    }
  }
}

TEST(LimitedSchedule, KeepsItsLimitAndLosesTimeAsItFalls) {
  const Graph graph = chain();
  const Machine machine;
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  const LimitedScheduler scheduler(problem);
  const Choices choices = lowest_choices(problem);
  const auto most = scheduler.run(choices, unlimited);
  ASSERT_TRUE(most);
  double first = most->seconds, last = first;
  Bytes limit = most->peak;
  for (; const auto sketch = scheduler.run(choices, limit); limit -= 4096) {
    EXPECT_LE(sketch->peak, align_up(limit, Plan{}.alignment));
    last = sketch->seconds;
  }
  EXPECT_LT(limit, most->peak / 2);
  EXPECT_GT(last, first);
  EXPECT_FALSE(scheduler.run(choices, unlimited, first));
  EXPECT_TRUE(scheduler.run(choices, unlimited, first * 1.001));
}

// What it promises is what the simulation finds, and never less.
TEST(LimitedSchedule, ItsPlansAreValidAndTakeTheTimeItSays) {
  int exact = 0, offered = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const Graph graph = testing::random_graph(seed, {.max_units = 3, .max_ops_per_unit = 2});
    const Machine machine = testing::random_machine(seed);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    const LimitedScheduler scheduler(problem);
    const auto most = scheduler.run(lowest_choices(problem), unlimited);
    ASSERT_TRUE(most);
    for (Bytes limit : {most->peak, most->peak - most->peak / 8, most->peak - most->peak / 4}) {
      const auto sketch = scheduler.run(lowest_choices(problem), limit);
      if (!sketch) continue;
      complete_each(scheduler, *sketch, limit, [&](const Plan& plan) {
        EXPECT_TRUE(validate(graph, plan, {limit, unlimited}).empty()) << "seed " << seed;
        EXPECT_GE(plan.predicted_step_seconds, sketch->seconds * (1 - 1e-9)) << "seed " << seed;
        exact += plan.predicted_step_seconds <= sketch->seconds * (1 + 1e-9) ? 1 : 0;
        ++offered;
      });
    }
  }
  EXPECT_GT(offered, 60);
  EXPECT_GT(exact, offered / 3);
}

}  // namespace
}  // namespace stowage
