#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Swiglu, GradientsMatchDifferences) {
  test::GradientCheck check;
  Value gate = check.variable("gate", {6, 7});
  Value up = check.variable("up", {6, 7});
  check.run(nn::gelu(check.builder, "z", nn::swiglu(check.builder, "y", gate, up), nn::Gelu::tanh));
}

TEST(Swiglu, OfAValueByItself) {
  test::GradientCheck check;
  Value x = nn::tanh(check.builder, "x", check.variable("p", {6, 7}));
  check.run(nn::swiglu(check.builder, "y", x, x));
}

TEST(Swiglu, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  Value y = nn::swiglu(b, "y", b.parameter("gate", {6, 7}, {}), b.parameter("up", {6, 7}, {}));
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward"));
  EXPECT_EQ(graph.ops[0].kernel, "swiglu");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].reads), ElementsAre("gate", "up"));
  EXPECT_THAT(graph.ops[0].may_alias, IsEmpty());  // backward reads both
  EXPECT_EQ(graph.ops[0].cost.flops, 14 * 6 * 7);
  EXPECT_EQ(graph.ops[0].cost.bytes, 3 * 6 * 7 * 8);
  EXPECT_EQ(graph.ops[3].kernel, "swiglu_backward");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("gate", "up", "y.grad"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].writes), ElementsAre("gate.grad", "up.grad"));
  EXPECT_THAT(graph.ops[3].may_alias, ElementsAre(Alias{0, 2}));
  EXPECT_EQ(graph.ops[3].cost.flops, 22 * 6 * 7);
}

TEST(Swiglu, LeavesAGradientThatOthersRead) {
  GraphBuilder b(DataType::f64);
  Value gate = b.parameter("gate", {6, 7}, {});
  Value y = nn::swiglu(b, "y", gate, b.parameter("up", {6, 7}, {}));
  Value z = nn::tanh(b, "z", b.parameter("p", {6, 7}, {}));
  Graph graph = b.finish_without_update(test::weighted_sum(b, nn::add(b, "sum", y, z)));
  EXPECT_THAT(graph.op(test::op_named(graph, "y.backward")).may_alias, IsEmpty());
}

// Whichever of its inputs wants a gradient.
TEST(Swiglu, GradientOfOneInputMatchesDifferences) {
  for (const bool of_gate : {true, false}) {
    test::GradientCheck check;
    Value wanted = check.variable("wanted", {6, 7});
    Value other = check.builder.input("other", {6, 7}, DataType::f64);
    check.run(nn::swiglu(check.builder, "y", of_gate ? wanted : other, of_gate ? other : wanted));
  }
}

TEST(Swiglu, RefusesShapesThatDoNotFit) {
  GraphBuilder b;
  Value gate = b.activation("gate", {6, 7});
  test::expect_refused(
      [&] {
        nn::swiglu(b, "mlp", gate, b.activation("up", {7, 6}));
      },
      "mlp: the input that it scales 'up' is f32 [7, 6]; give it f32 [6, 7]");
  test::expect_refused([&] { nn::swiglu(b, "mlp", b.parameter("bad", {6}, {}), gate); },
                       "mlp: the gate 'bad' is f32 [6]");
}

}  // namespace
}  // namespace stowage
