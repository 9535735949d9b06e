#include <gtest/gtest.h>

#include <cmath>

#include "offload/plan/schedule/fluid.h"
#include "stowage/planner.h"
#include "tests/offload/plan/schedule/slow_simulation.h"
#include "tests/support/draws.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

constexpr std::uint64_t cases = testing::draws<std::uint64_t>(100, 5);

void expect_slow_timeline(const Graph& graph, const Plan& plan, const Machine& machine) {
  const Timeline found = simulate(graph, plan, machine);
  const Timeline wanted = test::slow_simulation(graph, plan, machine);
  const double unit = wanted.step_seconds * 1e-9;
  double busy = 0;
  ASSERT_NEAR(found.step_seconds, wanted.step_seconds, unit);
  ASSERT_EQ(found.instructions.size(), wanted.instructions.size());
  for (std::size_t i = 0; i < wanted.instructions.size(); ++i) {
    ASSERT_NEAR(found.instructions[i].begin, wanted.instructions[i].begin, unit) << "instruction " << i;
    ASSERT_NEAR(found.instructions[i].end, wanted.instructions[i].end, unit) << "instruction " << i;
    if (plan.instructions[i].lane == LaneRole::compute)
      busy += wanted.instructions[i].end - wanted.instructions[i].begin;
  }
  ASSERT_NEAR(found.stall_seconds, wanted.step_seconds - busy, 100 * unit);
}

// On a machine whose lanes are apart, for which the plan is made, and on one whose lanes slow each other.
TEST(Simulate, TheSlowSimulationSaysTheSame) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(seed, {.max_units = 4, .max_ops_per_unit = 3});
    const Machine machine = testing::random_machine(seed);
    Planner planner = testing::quick_planner(graph, machine);
    const Bytes least = planner.minimum_bytes();
    const Bytes budget = std::max(least, testing::random_budget(seed, least, planner.need_bytes()));
    const Plan plan = std::get<Plan>(planner.answer({.device = budget}).outcome);
    for (const Machine& each : {machine, testing::shared_machine(seed)})
      ASSERT_NO_FATAL_FAILURE(expect_slow_timeline(graph, plan, each));
  }
}

TEST(Simulate, TheSlowSimulationSaysTheSameOfRanks) {
  int shared = 0;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(
        seed, {.max_units = 3, .max_ops_per_unit = 3, .share = {0, seed % 2 == 0 ? 2U : 4U}});
    const Machine machine = testing::machine_with_peers(seed);
    Planner planner = testing::quick_planner(graph, machine);
    const Bytes least = planner.minimum_bytes();
    const Plan plan = std::get<Plan>(planner.answer({.device = least + least / 8}).outcome);
    ASSERT_NO_FATAL_FAILURE(expect_slow_timeline(graph, plan, machine));
    shared += machine.peer_path != PeerPath::apart ? 1 : 0;
  }
  EXPECT_GT(shared, 0);
}

TEST(Fluid, NothingComesOfWaitsInACircleOrOfRatesThatAreNone) {
  Machine machine;
  machine.h2d_both_bytes_per_second = machine.h2d.bytes_per_second / 2;
  const LaneSpeeds speeds(machine);
  Plan plan;
  plan.instructions = {{.lane = LaneRole::compute, .waits = {{1, 0}}},
                       {.lane = LaneRole::h2d, .waits = {{0, 0}}},
                       {.lane = LaneRole::compute, .waits = {{0, 0}, {1, 0}}}};
  plan.gate = 2;
  const std::vector<WorkTime> work(3, WorkTime{0, 1});
  EXPECT_FALSE(simulate_fluid(plan, work, speeds));
  plan.instructions[0].waits.clear();
  EXPECT_TRUE(simulate_fluid(plan, work, speeds));
  EXPECT_FALSE(simulate_fluid(plan, {{0, 1}, {0, std::nan("")}, {0, 1}}, speeds));
  plan.gate = no_id;
  EXPECT_FALSE(simulate_fluid(plan, work, speeds));
}

}  // namespace
}  // namespace stowage
