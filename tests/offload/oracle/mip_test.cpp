#include "tests/offload/oracle/mip.h"
#include "offload/plan/problem/settings.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stowage/planner.h"
#include "tests/offload/oracle/oracle.h"
#include "tests/offload/oracle/small_graph.h"

namespace stowage::oracle {
namespace {

constexpr double tolerance = 1e-5;  // of the solver

Bytes between(Bytes least, Bytes need, double part) {
  return least + static_cast<Bytes>(part * static_cast<double>(need > least ? need - least : 0));
}

// A relaxation that were above the oracle would be wrong.
TEST(Mip, IsNeverAboveTheOracle) {
  double sum = 0;
  int count = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Instance instance = small_instance(seed);
    const Game game(instance.graph, instance.machine);
    const Bytes least = minimum_bytes(instance.graph, instance.machine);
    const Bytes need = need_bytes(instance.graph, instance.machine);
    for (double part : {0.0, 0.2, 0.7}) {
      const Bytes budget = between(least, need, part);
      const MipBound bound = mip_bound(instance.graph, instance.machine, {budget}, 5);
      const Answer answer = ask(game, instance.graph, {budget});
      EXPECT_LE(bound.seconds, answer.lower * (1 + tolerance)) << "seed " << seed << " at " << part;
      EXPECT_GT(bound.seconds, 0.3 * answer.lower) << "seed " << seed << " at " << part;
      sum += answer.lower / bound.seconds;
      ++count;
    }
  }
  RecordProperty("mean_oracle_over_bound", std::to_string(sum / count));
  std::printf("oracle over bound, mean: %.4f\n", sum / count);
}

TEST(Mip, IsNeverAboveTheOracleInLimitedHostMemory) {
  int slower = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Instance instance = small_instance(seed);
    const Game game(instance.graph, instance.machine);
    const Bytes least = minimum_bytes(instance.graph, instance.machine);
    const Bytes device = between(least, need_bytes(instance.graph, instance.machine), 0.2);
    const Answer freely = ask(game, instance.graph, {device});
    if (!freely.plan) continue;
    const MipBound without = mip_bound(instance.graph, instance.machine, {device}, 5);
    for (const Bytes percent : {100, 90, 75, 50}) {
      const Budget budget{device, freely.plan->host_bytes * percent / 100};
      const MipBound bound = mip_bound(instance.graph, instance.machine, budget, 5);
      EXPECT_LE(bound.seconds, ask(game, instance.graph, budget).lower * (1 + tolerance))
          << "seed " << seed << " at " << percent << " percent";
      slower += bound.seconds > without.seconds * 1.001 ? 1 : 0;
    }
  }
  EXPECT_GT(slower, 0) << "host memory was never scarce";
}

// Chains of 8 to 16 units, with nothing but the bound to judge them by.
TEST(Mip, IsNeverAboveThePlannerOnLongerChains) {
  double sum = 0, worst = 1;
  int count = 0;
  for (int units : {8, 12, 16})
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
      const Instance instance = sized_instance(seed, units);
      const Bytes least = minimum_bytes(instance.graph, instance.machine);
      const Bytes need = need_bytes(instance.graph, instance.machine);
      for (double part : {0.1, 0.5}) {
        const Bytes budget = between(least, need, part);
        const MipBound bound = mip_bound(instance.graph, instance.machine, {budget}, 3);
        PlanOptions options;
        // Not in the relaxation.
        own_settings(options).remakes = false;
        own_settings(options).joined_units.clear();
        const auto planned = make_plan(instance.graph, instance.machine, {budget, unlimited}, options);
        ASSERT_TRUE(std::holds_alternative<Plan>(planned));
        const double seconds = std::get<Plan>(planned).predicted_step_seconds;
        EXPECT_LE(bound.seconds, seconds * (1 + tolerance)) << units << " units, seed " << seed;
        sum += seconds / bound.seconds;
        worst = std::max(worst, seconds / bound.seconds);
        ++count;
      }
    }
  RecordProperty("mean_planner_over_bound", std::to_string(sum / count));
  std::printf("planner over bound: mean %.4f, worst %.4f\n", sum / count, worst);
}

TEST(Mip, SaysWhenNothingFits) {
  const Instance instance = small_instance(1);
  EXPECT_TRUE(std::isinf(mip_bound(instance.graph, instance.machine, {1000}, 5).seconds));
}

}  // namespace
}  // namespace stowage::oracle
