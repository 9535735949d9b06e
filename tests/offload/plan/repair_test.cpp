#include "offload/plan/repair.h"

#include <gtest/gtest.h>

#include "offload/plan/residency.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

// More ops than small_front() takes.
struct Setting {
  Setting()
      : graph(testing::chain_graph(
            {.units = 4, .activation_elements = 1 << 14, .parameter_elements = 1 << 15})),
        problem(make_problem(graph, machine, {.target_bytes = 0})) {}
  Graph graph;
  Machine machine;
  Problem problem;
};

TEST(Repair, TheFrontGoesDownInMemory) {
  const Setting setting;
  ASSERT_GT(setting.graph.ops.size(), 20U);
  const auto paths = minimum_candidates(setting.problem);
  const auto front = repaired_front(setting.problem, paths, 1000, 1'000'000);
  ASSERT_GT(front.size(), 3U);
  for (std::size_t i = 1; i < front.size(); ++i) {
    EXPECT_LT(front[i].limit, front[i - 1].limit);
    EXPECT_LE(front[i].peak, align_up(front[i].limit, Plan{}.alignment));
  }
  EXPECT_GT(front.back().seconds, front.front().seconds);
}

// No single change of what it returns is better at the same limit.
TEST(Repair, NoSingleChangeHelps) {
  const Setting setting;
  const auto paths = minimum_candidates(setting.problem);
  const LimitedScheduler scheduler(setting.problem);
  for (const LimitedSketch& member : repaired_front(setting.problem, paths, 1000, 1'000'000)) {
    for (BucketId id : setting.problem.layout.parameters)
      for (int level = 0; level <= static_cast<int>(LoadChoice::resident); ++level) {
        Choices changed = member.choices();
        changed.loads[id] = static_cast<LoadChoice>(level);
        EXPECT_FALSE(scheduler.run(changed, member.limit, member.seconds * (1 - 1e-6)));
      }
    for (const ActivationItem& item : setting.problem.items)
      for (ActivationChoice choice : {ActivationChoice::offload, ActivationChoice::keep}) {
        Choices changed = member.choices();
        choose(item, choice, changed);
        EXPECT_FALSE(scheduler.run(changed, member.limit, member.seconds * (1 - 1e-6)));
      }
  }
}

TEST(Repair, StopsWhenItsWorkIsDone) {
  const Setting setting;
  const auto paths = minimum_candidates(setting.problem);
  EXPECT_TRUE(repaired_front(setting.problem, paths, 1000, 0).empty());
  EXPECT_LE(repaired_front(setting.problem, paths, 1000, 2000).size(),
            repaired_front(setting.problem, paths, 1000, 1'000'000).size());
}

}  // namespace
}  // namespace stowage
