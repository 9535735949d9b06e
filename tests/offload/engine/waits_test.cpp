// Every wait of a plan, removed: the device sees the race, or the wait was implied by the others.
#include <gtest/gtest.h>

#include "stowage/planner.h"
#include "tests/offload/engine/tiny_step.h"
#include "tests/offload/engine/training_run.h"
#include "tests/offload/engine/wait_sweep.h"
#include "tests/support/draws.h"
#include "tests/support/mix_kernel.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using namespace stowage::testing;

TEST(Waits, EachOneOfTheTinyPlansIsCaught) {
  for (const Plan& plan : {tiny_streamed_plan(), tiny_resident_plan()}) {
    const WaitSweep sweep = sweep_waits(tiny_graph(), plan, tiny_kernels(), 5);
    EXPECT_EQ(sweep.implied, 0);
    EXPECT_EQ(sweep.caught, plan.policy == "auto" ? 8 : 5);
  }
}

// Plans from the least memory to all that is needed, and the one without offload.
std::vector<Plan> plans_of(const Graph& graph, const Machine& machine, const PlanOptions& options) {
  const Bytes minimum = minimum_bytes(graph, machine, options), need = need_bytes(graph, machine);
  std::vector<Plan> plans;
  for (Bytes budget : {minimum, minimum + (need - minimum) / 3, minimum + (need - minimum) * 2 / 3, need})
    plans.push_back(std::get<Plan>(quick_plan(graph, machine, {.device = budget}, options)));
  plans.push_back(std::get<Plan>(quick_plan(graph, machine, {}, {.policy = Policy::none})));
  return plans;
}

TEST(Waits, EachOneOfAGptsPlansIsCaughtOrImplied) {
  const Graph graph = smallest_gpt(2);
  for (Bytes bucket_bytes : {Bytes{0}, 256UL, 1_KiB}) {
    if (fewer_draws && bucket_bytes == 1_KiB) continue;
    for (const Plan& plan : plans_of(graph, Machine{}, {.bucket_bytes = bucket_bytes})) {
      SCOPED_TRACE(plan.policy + " with peak " + std::to_string(plan.device_peak_bytes));
      const WaitSweep sweep = sweep_waits(graph, plan, cpu_launch_table(), 16);
      EXPECT_GT(sweep.caught, 0);
      EXPECT_EQ(sweep.implied, 0);
    }
  }
}

TEST(Waits, EachOneOfARandomGraphsPlansIsCaughtOrImplied) {
  LaunchTable kernels = cpu_launch_table();
  kernels.add("mix", mix_kernel);
  for (std::uint64_t seed = 0; seed < draws(12U, 3U); ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = random_graph(seed, {.max_elements = 1 << 10});
    const Machine machine = random_machine(seed);
    for (const Plan& plan : plans_of(graph, machine, {})) {
      const WaitSweep sweep = sweep_waits(graph, plan, kernels, 100);
      EXPECT_GT(sweep.caught, 0);
    }
  }
}

}  // namespace
}  // namespace stowage
