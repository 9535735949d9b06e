#include "offload/plan/schedule/candidate.h"

#include <gtest/gtest.h>

#include "offload/plan/decisions/extreme_choices.h"
#include "offload/plan/schedule/places.h"
#include "tests/offload/plan/large_graph.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

// In as many bytes as the estimate takes.
TEST(Candidate, EstimatesAreTheTimesOfPlans) {
  const Graph graph = testing::large_graph();
  const Machine machine = testing::large_graph_machine();
  const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
  int placed = 0;
  for (const Choices& choices : minimum_candidates(problem)) {
    const Sketcher sketcher(problem, choices);
    for (const Bytes percent : {110U, 150U, 250U}) {
      const Sketch sketch = sketcher.within(sketcher.serial_bytes() * percent / 100, 0);
      const double estimated = estimated_seconds(problem, sketch);
      const auto plan = placed_within(problem, sketch.draft, sketch.live_peak_bytes * 101 / 100, {});
      if (!plan) continue;
      ++placed;
      EXPECT_NEAR(estimated, plan->predicted_step_seconds, 0.005 * estimated) << percent;
    }
  }
  EXPECT_GT(placed, 10);
}

TEST(Candidate, NoPlanTakesLessThanTheLeastSecondsAndSomeTakeHardlyMore) {
  int near = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::any_machine(seed);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    for (const Choices& choices : minimum_candidates(problem)) {
      const Sketcher sketcher(problem, choices);
      for (const Bytes cap : {sketcher.serial_bytes(), 2 * sketcher.serial_bytes()}) {
        const Draft draft = sketcher.within(cap, 0).draft;
        const double least = least_seconds(problem, draft);
        for (const Plan& plan : {complete(problem, draft), placed_low(problem, draft)}) {
          EXPECT_GE(plan.predicted_step_seconds, least * (1 - 1e-9));
          near += plan.predicted_step_seconds < 1.02 * least ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(near, 20);
}

TEST(Candidate, SketchesKeepTheirCapOrTheSerialBytesAndKnowTheirHostBytes) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::random_machine(seed);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    std::vector<Choices> all = minimum_candidates(problem);
    all.push_back(resident_choices(problem));
    for (const Choices& choices : all) {
      const Sketcher sketcher(problem, choices);
      const Bytes serial = sketcher.serial_bytes();
      EXPECT_EQ(sketcher.serial().live_peak_bytes, serial);
      for (const Bytes cap : {serial / 2, serial, serial * 5 / 4, 2 * serial})
        EXPECT_LE(sketcher.within(cap, 0).live_peak_bytes, std::max(cap, serial));
      for (const Sketch& sketch : {sketcher.serial(), sketcher.within(unlimited, 0)})
        EXPECT_EQ(host_bytes(problem, sketch.draft), complete(problem, sketch.draft).host_bytes);
    }
  }
}

}  // namespace
}  // namespace stowage
