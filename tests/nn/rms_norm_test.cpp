#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

TEST(RmsNorm, GradientsMatchDifferences) {
  for (double epsilon : {1e-5, 0.5}) {
    test::GradientCheck check;
    Value x = check.variable("x", {5, 8});
    check.run(nn::rms_norm(check.builder, "y", x, check.variable("gain", {8}), epsilon));
  }
}

TEST(RmsNorm, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  Value y = nn::rms_norm(b, "y", b.parameter("x", {5, 8}, {}), b.parameter("gain", {8}, {}), 0.25);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward"));
  EXPECT_EQ(graph.ops[0].kernel, "rms_norm");
  EXPECT_EQ(graph.ops[0].attributes, (Attributes{{"epsilon", 0.25}}));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].reads), ElementsAre("x", "gain"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].writes), ElementsAre("y", "y.rstd"));
  EXPECT_EQ(graph.ops[0].cost.flops, 4 * 5 * 8);
  EXPECT_EQ(graph.ops[0].cost.bytes, (2 * 5 * 8 + 8 + 5) * 8);
  EXPECT_EQ(graph.ops[3].kernel, "rms_norm_backward");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("x", "gain", "y.rstd", "y.grad"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].writes), ElementsAre("x.grad", "gain.grad"));
  EXPECT_THAT(graph.ops[3].may_alias, ElementsAre(Alias{0, 3}));
  EXPECT_EQ(graph.ops[3].cost.flops, 10 * 5 * 8);
}

TEST(RmsNorm, KeepsItsStatisticInF32BesideNarrowTypes) {
  GraphBuilder b(DataType::bf16);
  Value y = nn::rms_norm(b, "y", b.parameter("x", {5, 8}, {}), b.parameter("gain", {8}, {}));
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_EQ(graph.tensor(graph.ops[0].writes[0]).type, DataType::bf16);
  EXPECT_EQ(graph.tensor(graph.ops[0].writes[1]).type, DataType::f32);
}

// A branch that begins with a norm, beside the trunk.
struct RmsBranch {
  test::GradientCheck check;
  Value x = check.variable("x", {5, 8});
  Value trunk = nn::tanh(check.builder, "trunk", x);
  Value y = nn::rms_norm(check.builder, "y", trunk, check.variable("gain", {8}));
  Value sum = nn::add(check.builder, "sum", trunk, nn::tanh(check.builder, "branch", y));
};

TEST(RmsNorm, AddsTheGradientThatCameToItsInputBefore) {
  RmsBranch branch;
  branch.check.run(branch.sum);
}

TEST(RmsNorm, AddsItInItsOwnOp) {
  RmsBranch branch;
  GraphBuilder& b = branch.check.builder;
  Graph graph = b.finish_without_update(test::weighted_sum(b, branch.sum));
  EXPECT_THAT(test::op_names(graph), ElementsAre("trunk", "y", "branch", "sum", "loss", "loss.backward",
                                                 "branch.backward", "y.backward", "trunk.backward"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[7].reads),
              ElementsAre("trunk", "gain", "y.rstd", "y.grad", "sum.grad"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[8].reads), ElementsAre("trunk", "trunk.grad"));
}

TEST(RmsNorm, AnInputWithoutGradientLeavesItsGainsGradient) {
  GraphBuilder b(DataType::f64);
  Value y = nn::rms_norm(b, "y", b.input("x", {5, 8}, DataType::f64), b.parameter("gain", {8}, {}));
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward_parameters"));
  EXPECT_EQ(graph.ops[3].kernel, "rms_norm_backward_parameters");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("x", "y.rstd", "y.grad"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].writes), ElementsAre("gain.grad"));
}

TEST(RmsNorm, GradientOfTheGainAloneMatchesDifferences) {
  test::GradientCheck check;
  Value x = check.builder.input("x", {5, 8}, DataType::f64);
  check.run(nn::rms_norm(check.builder, "y", x, check.variable("gain", {8})));
}

TEST(RmsNorm, ComputesOnlyTheGradientsThatAreWanted) {
  GraphBuilder b(DataType::f64);
  Value gain = b.frozen_parameter("gain", {8}, {});
  Value y = nn::rms_norm(b, "y", b.parameter("x", {5, 8}, {}), gain);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].writes), ElementsAre("x.grad"));
}

TEST(RmsNorm, RefusesShapesThatDoNotFit) {
  GraphBuilder b;
  Value x = b.activation("x", {5, 8});
  Value bad = b.parameter("bad", {5}, {});
  test::expect_refused([&] { nn::rms_norm(b, "norm", x, bad); },
                       "norm: the gain 'bad' is f32 [5]; give it f32 [8]");
  test::expect_refused([&] { nn::rms_norm(b, "norm", bad, bad); }, "norm: the input 'bad' is f32 [5]");
}

}  // namespace
}  // namespace stowage
