#include "offload/plan/step_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "offload/plan/bound.h"
#include "src/graph/cost.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

using testing::chain_graph;
using testing::find_op;
using testing::find_tensor;

struct Setting {
  explicit Setting(Graph of, Machine on = {}) : graph(std::move(of)), machine(on) {}
  double host_update(const char* parameter) const {
    for (const Op& op : graph.ops)
      if (op.phase == Phase::update && op.writes.front() == find_tensor(graph, parameter))
        return host_seconds(op, machine);
    return 0;
  }
  Graph graph;
  Machine machine;
  Problem problem = make_problem(graph, machine, {.target_bytes = 0});
};

// The host's updates take as long as all of forward, and one of the middle as long as all others.
Graph with_large_middle(bool undoable = false) {
  Graph graph = chain_graph({.units = 8,
                             .activation_elements = 64,
                             .parameter_elements = 1 << 14,
                             .op_flops = 1e8,
                             .undoable = undoable});
  for (Op& op : graph.ops)
    if (op.phase == Phase::update && op.writes.front() == find_tensor(graph, "W4")) op.cost.bytes *= 100;
  return graph;
}

TEST(StepCuts, TheFrontIsCutBehindTheUpdateThatHoldsItUp) {
  const Setting setting(with_large_middle());
  const StepCuts cuts = find_cuts(setting.problem, share_cuts);
  EXPECT_NE(std::find(cuts.front.begin(), cuts.front.end(), find_op(setting.graph, "a4")), cuts.front.end());
  EXPECT_LE(cuts.front.size(), share_cuts);
  EXPECT_EQ(cuts.first_read[find_tensor(setting.graph, "W4")], find_op(setting.graph, "a4"));
}

TEST(StepCuts, WhatStandsOnEachSideIsCounted) {
  const Setting setting(with_large_middle());
  StepCuts cuts = find_cuts(setting.problem, share_cuts);
  cuts.front = {find_op(setting.graph, "a4")};
  cuts.back = {find_op(setting.graph, "a.weight3")};
  ShareCost cost;
  cuts.add_op(find_op(setting.graph, "a4"), true, 1, cost);  // at the cut: before what is behind it
  EXPECT_EQ(cost.front[share_lanes], 0);
  cuts.add_op(find_op(setting.graph, "b4"), true, 1, cost);
  EXPECT_EQ(cost.front[share_lanes], 1);
  cuts.add_update(find_tensor(setting.graph, "W5"), 10, cost);
  EXPECT_EQ(cost.front[share_lanes], 1);
  cuts.add_update(find_tensor(setting.graph, "W4"), 10, cost);
  cuts.add_update(find_tensor(setting.graph, "W0"), 10, cost);
  EXPECT_EQ(cost.front[share_lanes], 21);
}

// An update before the gate stands behind the op that makes its gradient.
TEST(StepCuts, TheBackIsCutBeforeTheUpdatesThatBeginInIt) {
  const Setting setting(with_large_middle(true));
  StepCuts cuts = find_cuts(setting.problem, share_cuts);
  EXPECT_THAT(cuts.updates, ::testing::Not(::testing::IsEmpty()));
  EXPECT_LE(cuts.updates.size(), update_cuts);
  EXPECT_THAT(find_cuts(Setting(with_large_middle()).problem, share_cuts).updates, ::testing::IsEmpty());
  cuts.updates = {find_op(setting.graph, "a.weight4")};
  constexpr std::size_t row = share_lanes + share_cuts;
  ShareCost cost;
  cuts.add_op(find_op(setting.graph, "a.weight4"), false, 1, cost);
  EXPECT_EQ(cost.back[row], 0);
  cuts.add_op(find_op(setting.graph, "a.weight5"), false, 1, cost);
  EXPECT_EQ(cost.back[row], 1);
  cuts.add_early_update(find_tensor(setting.graph, "W5"), 10, cost);
  EXPECT_EQ(cost.back[row], 1);
  cuts.add_early_update(find_tensor(setting.graph, "W4"), 10, cost);
  cuts.add_early_update(find_tensor(setting.graph, "W0"), 10, cost);
  EXPECT_EQ(cost.back[row], 21);
  EXPECT_EQ(cost.front, ShareCost{}.front);
}

// In little memory W4 is updated on the host, and no op from a4 on runs before that.
TEST(StepCuts, TheLowerBoundCountsThem) {
  const Setting setting(with_large_middle());
  double behind = 0, backward = 0;
  for (OpId op = 0; op < setting.graph.ops.size(); ++op) {
    const Op& of = setting.graph.op(op);
    if (of.phase == Phase::forward && op > find_op(setting.graph, "a4"))
      behind += op_seconds(of, setting.machine);
    if (of.phase == Phase::backward) backward += op_seconds(of, setting.machine);
  }
  const double least = setting.host_update("W4") + behind + backward;
  EXPECT_GE(lower_bound(setting.problem, {70'000, unlimited}).seconds, 0.99 * least);
}

}  // namespace
}  // namespace stowage
