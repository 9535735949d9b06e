#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

TEST(FirstToken, GradientsMatchDifferences) {
  test::GradientCheck check;
  Value x = check.variable("x", {6, 4});
  check.run(nn::gelu(check.builder, "y", nn::first_token(check.builder, "first", x, 3), nn::Gelu::tanh));
}

TEST(FirstToken, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  Value y = nn::first_token(b, "y", b.parameter("x", {6, 4}, {}), 3);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward"));
  EXPECT_EQ(graph.tensor(graph.ops[0].writes[0]).shape, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(graph.ops[0].kernel, "first_token");
  EXPECT_EQ(graph.ops[0].cost.bytes, 2 * 2 * 4 * 8);
  EXPECT_EQ(graph.ops[3].kernel, "first_token_backward");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("y.grad"));
  EXPECT_EQ(graph.ops[3].attributes, (Attributes{{"sequence", std::int64_t{3}}}));
}

TEST(FirstToken, NeedsWholeSequences) {
  GraphBuilder b;
  Value x = b.activation("x", {7, 4});
  test::expect_refused([&] { nn::first_token(b, "first", x, 3); }, "first: the tokens are no whole number");
  test::expect_refused([&] { nn::first_token(b, "first", x, 0); }, "first: the tokens are no whole number");
}

}  // namespace
}  // namespace stowage
