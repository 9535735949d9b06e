#include "offload/plan/decisions/step_cuts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "offload/plan/bound/bound.h"
#include "src/graph/cost.h"
#include "tests/support/chain_graph.h"

namespace stowage {
namespace {

using testing::chain_graph;
using testing::find_op;
using testing::find_tensor;

struct Setting {
  explicit Setting(Graph of, Machine on = {}) : graph(std::move(of)), machine(on) {}
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

TEST(StepCuts, AreBehindWhatHoldsUpTheFrontAndBeforeWhatBeginsInTheBack) {
  const Setting setting(with_large_middle(true));
  const StepCuts cuts = find_cuts(setting.problem, share_cuts);
  EXPECT_THAT(cuts.updates, ::testing::Not(::testing::IsEmpty()));
  EXPECT_THAT(cuts.front, ::testing::Contains(find_op(setting.graph, "a4")));
  EXPECT_LE(cuts.updates.size(), update_cuts);
  EXPECT_THAT(find_cuts(Setting(with_large_middle()).problem, share_cuts).updates, ::testing::IsEmpty());
}

// In little memory W4 is updated on the host, and no op from a4 on runs before that.
TEST(StepCuts, TheLowerBoundCountsThem) {
  const Setting setting(with_large_middle());
  double update = 0, behind = 0, backward = 0;
  for (OpId op = 0; op < setting.graph.ops.size(); ++op) {
    const Op& of = setting.graph.op(op);
    if (of.phase == Phase::update && of.writes.front() == find_tensor(setting.graph, "W4"))
      update = host_seconds(of, setting.machine);
    if (of.phase == Phase::forward && op > find_op(setting.graph, "a4"))
      behind += op_seconds(of, setting.machine);
    if (of.phase == Phase::backward) backward += op_seconds(of, setting.machine);
  }
  const double least = update + behind + backward;
  EXPECT_GE(lower_bound(setting.problem, {70'000, unlimited}).seconds, 0.99 * least);
}

}  // namespace
}  // namespace stowage
