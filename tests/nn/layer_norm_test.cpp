#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

TEST(LayerNorm, GradientsMatchDifferences) {
  for (double epsilon : {1e-5, 0.5}) {
    test::GradientCheck check;
    Value x = check.variable("x", {5, 8});
    Value gain = check.variable("gain", {8});
    Value bias = check.variable("bias", {8});
    check.run(nn::layer_norm(check.builder, "y", x, gain, bias, epsilon));
  }
}

TEST(LayerNorm, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  Value x = b.parameter("x", {5, 8}, {});
  Value y = nn::layer_norm(b, "y", x, b.parameter("gain", {8}, {}), b.parameter("bias", {8}, {}), 0.25);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward"));
  EXPECT_EQ(graph.ops[0].kernel, "layer_norm");
  EXPECT_EQ(graph.ops[0].attributes, (Attributes{{"epsilon", 0.25}}));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].reads), ElementsAre("x", "gain", "bias"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].writes), ElementsAre("y", "y.mean", "y.rstd"));
  EXPECT_EQ(graph.ops[3].kernel, "layer_norm_backward");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads),
              ElementsAre("x", "gain", "y.mean", "y.rstd", "y.grad"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].writes),
              ElementsAre("x.grad", "gain.grad", "bias.grad"));
  EXPECT_THAT(graph.ops[3].may_alias, ElementsAre(Alias{0, 4}));
}

// A branch that begins with a norm, beside the trunk: x + norm(x) 2.
struct Branch {
  test::GradientCheck check;
  Value x = check.variable("x", {5, 8});
  Value trunk = nn::tanh(check.builder, "trunk", x);
  Value y =
      nn::layer_norm(check.builder, "y", trunk, check.variable("gain", {8}), check.variable("bias", {8}));
  Value sum = nn::add(check.builder, "sum", trunk, nn::tanh(check.builder, "branch", y));
};

TEST(LayerNorm, AddsTheGradientThatCameToItsInputBefore) {
  Branch branch;
  branch.check.run(branch.sum);
}

TEST(LayerNorm, AddsItInItsOwnOp) {
  Branch branch;
  GraphBuilder& b = branch.check.builder;
  Graph graph = b.finish_without_update(test::weighted_sum(b, branch.sum));
  EXPECT_THAT(test::op_names(graph), ElementsAre("trunk", "y", "branch", "sum", "loss", "loss.backward",
                                                 "branch.backward", "y.backward", "trunk.backward"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[7].reads),
              ElementsAre("trunk", "gain", "y.mean", "y.rstd", "y.grad", "sum.grad"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[8].reads), ElementsAre("trunk", "trunk.grad"));
}

TEST(LayerNorm, AnInputWithoutGradientLeavesItsParametersGradients) {
  GraphBuilder b(DataType::f64);
  Value x = b.input("x", {5, 8}, DataType::f64);
  Value y = nn::layer_norm(b, "y", x, b.parameter("gain", {8}, {}), b.parameter("bias", {8}, {}));
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward_parameters"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("x", "y.mean", "y.rstd", "y.grad"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].writes), ElementsAre("gain.grad", "bias.grad"));
}

TEST(LayerNorm, ComputesOnlyTheGradientsThatAreWanted) {
  GraphBuilder b(DataType::f64);
  Value gain = b.input("gain", {8}, DataType::f64);
  Value x = b.parameter("x", {5, 8}, {});
  Value y = nn::layer_norm(b, "y", x, gain, b.input("bias", {8}, DataType::f64));
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward"));
}

TEST(LayerNorm, RefusesShapesThatDoNotFit) {
  GraphBuilder b;
  Value x = b.activation("x", {5, 8});
  Value good = b.parameter("good", {8}, {});
  Value bad = b.parameter("bad", {5}, {});
  test::expect_refused([&] { nn::layer_norm(b, "ln", x, bad, good); },
                       "ln: the gain 'bad' is f32 [5]; give it f32 [8]");
  test::expect_refused([&] { nn::layer_norm(b, "ln", x, good, bad); }, "ln: the bias 'bad'");
  test::expect_refused([&] { nn::layer_norm(b, "ln", good, good, good); }, "ln: the input 'good' is f32 [8]");
}

}  // namespace
}  // namespace stowage
