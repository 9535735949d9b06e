#include "offload/plan/small_front.h"

#include <gtest/gtest.h>

#include "offload/plan/changes.h"
#include "offload/plan/residency.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

struct Setting {
  explicit Setting(int units = 2)
      : graph(testing::chain_graph(
            {.units = units, .activation_elements = 1 << 14, .parameter_elements = 1 << 15})),
        problem(make_problem(graph, machine, {.target_bytes = 0})) {}
  std::optional<std::vector<LimitedSketch>> front() const {
    return small_front(problem, minimum_candidates(problem), 1000);
  }
  Graph graph;
  Machine machine;
  Problem problem;
};

// The rungs alone: of each limit the first.
std::vector<LimitedSketch> rungs_of(const std::vector<LimitedSketch>& front) {
  std::vector<LimitedSketch> rungs;
  for (const LimitedSketch& member : front)
    if (rungs.empty() || member.limit != rungs.back().limit) rungs.push_back(member);
  return rungs;
}

TEST(SmallFront, GoesDownInMemoryAndUpInTime) {
  const Setting setting;
  const auto front = setting.front();
  ASSERT_TRUE(front);
  const std::vector<LimitedSketch> rungs = rungs_of(*front);
  ASSERT_GT(rungs.size(), 3U);
  for (std::size_t i = 0; i < rungs.size(); ++i) {
    EXPECT_LE(rungs[i].peak, align_up(std::min(rungs[i].limit, Bytes{1} << 62U), Plan{}.alignment));
    if (i == 0) continue;
    EXPECT_LT(rungs[i].limit, rungs[i - 1].limit);
    EXPECT_GE(rungs[i].seconds, rungs[i - 1].seconds);
  }
  EXPECT_GT(rungs.back().seconds, rungs.front().seconds);
}

// Nor does any pair of changes.
TEST(SmallFront, NoTwoChangesHelp) {
  const Setting setting;
  const Problem& problem = setting.problem;
  const LimitedScheduler scheduler(problem);
  const auto front = setting.front();
  ASSERT_TRUE(front);
  const std::vector<Change> changes = all_changes(problem);
  for (const LimitedSketch& rung : rungs_of(*front))
    for (const Change& one : changes)
      for (const Change& two : changes) {
        Choices changed = rung.choices();
        apply(problem, one, changed);
        apply(problem, two, changed);
        EXPECT_FALSE(scheduler.run(changed, rung.limit, rung.seconds * (1 - 1e-6)));
      }
}

TEST(SmallFront, LeavesLargerGraphsToRepair) { EXPECT_FALSE(Setting(4).front()); }

}  // namespace
}  // namespace stowage
