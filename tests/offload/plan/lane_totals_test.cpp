#include "offload/plan/lane_totals.h"

#include <gtest/gtest.h>

#include "offload/plan/residency.h"
#include "src/graph/cost.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

struct Setting {
  Setting()
      : graph(testing::chain_graph(
            {.units = 3, .activation_elements = 1 << 14, .parameter_elements = 1 << 16})),
        problem(make_problem(graph, machine, {.target_bytes = 0})),
        model(problem) {}
  Machine machine;
  Graph graph;
  Problem problem;
  LaneModel model;
};

// Against the plan itself: what its lanes have to do, added up.
LaneTotals counted(const Setting& setting, const Choices& choices) {
  const Draft draft = Sketcher(setting.problem, choices).serial().draft;
  LaneTotals totals;
  std::vector<bool> on_device(setting.graph.ops.size(), false);
  for (const SequenceStep& step : draft.sequence) {
    const Op& op = setting.graph.op(step.op);
    const double seconds = op_seconds(op, setting.machine);
    on_device[step.op] = true;
    if (op.phase == Phase::update)
      totals.update += seconds;
    else if (op.phase == Phase::forward && !step.recompute)
      totals.front.compute += seconds;
    else
      totals.back.compute += seconds;
  }
  for (OpId op = 0; op < setting.graph.ops.size(); ++op)
    if (setting.graph.op(op).phase == Phase::update && !on_device[op] &&
        setting.graph.op(op).kernel != "clip_scale")
      totals.front.host += host_seconds(setting.graph.op(op), setting.machine);
  return totals;
}

TEST(LaneTotals, AreTheWorkOfThePlansLanes) {
  Setting setting;
  Choices mixed = lowest_choices(setting.problem);
  mixed.loads[setting.problem.layout.parameters[1]] = LoadChoice::resident;
  for (const ActivationItem& item : setting.problem.items)
    if (item.unit == 2 && item.rebuildable) choose(item, ActivationChoice::keep, mixed);
  for (const Choices& choices : {lowest_choices(setting.problem), mixed, resident_choices(setting.problem)}) {
    const LaneTotals expected = counted(setting, choices);
    const LaneTotals found = setting.model.totals(choices);
    EXPECT_DOUBLE_EQ(found.front.compute, expected.front.compute);
    EXPECT_DOUBLE_EQ(found.back.compute, expected.back.compute);
    EXPECT_DOUBLE_EQ(found.update, expected.update);
    EXPECT_NEAR(found.front.host, expected.front.host, 1e-12);
  }
}

TEST(LaneTotals, OffloadingMovesTheBytesOutInFrontAndInBehind) {
  Setting setting;
  Choices choices = resident_choices(setting.problem);
  const LaneTotals before = setting.model.totals(choices);
  const ActivationItem& item = setting.problem.items[1];
  choose(item, ActivationChoice::offload, choices);
  const LaneTotals after = setting.model.totals(choices);
  EXPECT_NEAR(after.front.d2h - before.front.d2h, setting.machine.d2h.seconds(item.bytes), 1e-12);
  EXPECT_NEAR(after.back.h2d - before.back.h2d, setting.machine.h2d.seconds(item.bytes), 1e-12);
  EXPECT_DOUBLE_EQ(after.back.compute, before.back.compute);
}

TEST(LaneTotals, LanesOverlapButNotWholly) {
  LaneTotals one;
  one.front = {.compute = 4};
  one.back = {.compute = 2};
  one.update = 1;
  EXPECT_DOUBLE_EQ(one.seconds(), 7);
  one.front.h2d = 1;  // hidden behind arithmetic
  EXPECT_NEAR(one.seconds(), 7, 1e-4);
  one.front.h2d = 4;  // as much as that
  EXPECT_GT(one.seconds(), 7.3);
  EXPECT_LT(one.seconds(), 7.5);
}

}  // namespace
}  // namespace stowage
