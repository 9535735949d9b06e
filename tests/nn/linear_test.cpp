#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

TEST(Linear, GradientsMatchDifferences) {
  for (bool transposed : {false, true}) {
    for (bool with_bias : {false, true}) {
      test::GradientCheck check;
      Value x = check.variable("x", {7, 5});
      Value weight =
          check.variable("w", transposed ? std::vector<std::int64_t>{3, 5} : std::vector<std::int64_t>{5, 3});
      Value bias = with_bias ? check.variable("bias", {3}) : Value{};
      check.run(nn::linear(check.builder, "y", x, weight, bias, transposed));
    }
  }
}

TEST(Linear, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  Value x = b.parameter("x", {7, 5}, {});
  Value y = nn::linear(b, "y", x, b.parameter("w", {3, 5}, {}), b.parameter("bias", {3}, {}), true);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward_weight",
                                                 "y.backward_bias", "y.backward"));
  Attributes transposed{{"transposed", std::int64_t{1}}};
  const Op& forward = graph.ops[0];
  EXPECT_EQ(forward.kernel, "linear");
  EXPECT_EQ(forward.attributes, transposed);
  EXPECT_THAT(test::tensor_names(graph, forward.reads), ElementsAre("x", "w", "bias"));
  EXPECT_EQ(graph.tensor(forward.writes[0]).shape, (std::vector<std::int64_t>{7, 3}));
  EXPECT_EQ(forward.cost, (OpCost{2.0 * 7 * 5 * 3 + 7 * 3, 8.0 * (7 * 5 + 3 * 5 + 3 + 7 * 3)}));
  const Op& weight = graph.ops[3];
  EXPECT_EQ(weight.kernel, "linear_backward_weight");
  EXPECT_EQ(weight.attributes, transposed);
  EXPECT_THAT(test::tensor_names(graph, weight.reads), ElementsAre("x", "y.grad"));
  EXPECT_EQ(weight.cost.flops, 2.0 * 7 * 5 * 3);
  EXPECT_EQ(graph.ops[4].kernel, "linear_backward_bias");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[4].reads), ElementsAre("y.grad"));
  EXPECT_EQ(graph.ops[5].kernel, "linear_backward_input");
  EXPECT_EQ(graph.ops[5].attributes, transposed);
  EXPECT_THAT(test::tensor_names(graph, graph.ops[5].reads), ElementsAre("y.grad", "w"));
  EXPECT_EQ(graph.ops[5].cost.flops, 2.0 * 7 * 5 * 3);
}

TEST(LinearGelu, GradientsMatchDifferences) {
  for (bool transposed : {false, true}) {
    for (nn::Gelu form : {nn::Gelu::tanh, nn::Gelu::erf}) {
      test::GradientCheck check;
      Value x = check.variable("x", {7, 5});
      Value weight =
          check.variable("w", transposed ? std::vector<std::int64_t>{3, 5} : std::vector<std::int64_t>{5, 3});
      Value bias = check.variable("bias", {3});
      check.run(nn::linear_gelu(check.builder, "y", x, weight, bias, form, transposed));
    }
  }
}

TEST(LinearGelu, IsOneOpForwardAndTheUsualOnesBackward) {
  GraphBuilder b(DataType::f64);
  Value x = b.parameter("x", {7, 5}, {});
  Value y = nn::linear_gelu(b, "y", x, b.parameter("w", {3, 5}, {}), b.parameter("bias", {3}, {}),
                            nn::Gelu::erf, true);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward_gelu",
                                                 "y.backward_weight", "y.backward"));
  EXPECT_EQ(graph.ops[0].attributes,
            (Attributes{{"transposed", std::int64_t{1}}, {"form", std::string("erf")}}));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].writes), ElementsAre("y.pre", "y"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("y.pre", "y.grad"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].writes), ElementsAre("y.pre.grad", "bias.grad"));
  EXPECT_EQ(graph.ops[3].may_alias, (std::vector<Alias>{{0, 1}}));
}

TEST(LinearGelu, ABiasThatIsNoParameterGetsNoGradient) {
  GraphBuilder b(DataType::f64);
  Value x = b.parameter("x", {7, 5}, {});
  Value y = nn::linear_gelu(b, "y", x, b.parameter("w", {5, 3}, {}), b.input("bias", {3}, DataType::f64),
                            nn::Gelu::erf);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].writes), ElementsAre("y.pre.grad"));
}

TEST(LinearGelu, NeedsABias) {
  GraphBuilder b;
  Value x = b.activation("x", {7, 5});
  Value w = b.parameter("w", {5, 3}, {});
  test::expect_refused([&] { nn::linear_gelu(b, "fc", x, w, {}, nn::Gelu::tanh); }, "fc: it has no bias");
}

TEST(Linear, AnInputThatNeedsNoGradientGetsNoOp) {
  GraphBuilder b(DataType::f64);
  Value x = b.input("x", {7, 5}, DataType::f64);
  Value y = nn::linear(b, "y", x, b.parameter("w", {5, 3}, {}), {});
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward_weight"));
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  GraphBuilder b;
  Value x = b.activation("x", {7, 5});
  Value w = b.parameter("w", {4, 3}, {});
  test::expect_refused([&] { nn::linear(b, "fc", x, w, {}); },
                       "fc: the weight 'w' is f32 [4, 3]; give it f32 [5, any]");
  test::expect_refused([&] { nn::linear(b, "fc", x, w, {}, true); }, "give it f32 [any, 5]");
  test::expect_refused([&] { nn::linear(b, "fc", x, {}, {}); }, "fc: the weight is missing");
  Value fits = b.parameter("fits", {5, 3}, {});
  test::expect_refused([&] { nn::linear(b, "fc", x, fits, x); },
                       "fc: the bias 'x' is f32 [7, 5]; give it f32 [3]");
  Value tokens = b.input("tokens", {7, 5});
  test::expect_refused([&] { nn::linear(b, "fc", tokens, fits, {}); },
                       "fc: the input 'tokens' is i32 [7, 5]");
}

}  // namespace
}  // namespace stowage
