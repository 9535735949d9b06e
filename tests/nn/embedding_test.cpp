#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

TEST(Embedding, GradientsMatchDifferences) {
  for (bool with_positions : {false, true}) {
    test::GradientCheck check;
    Value tokens = check.integers("tokens", {8}, 5);
    Value table = check.variable("table", {5, 3});
    Value positions = with_positions ? check.variable("positions", {4, 3}) : Value{};
    Value x = nn::embedding(check.builder, "x", tokens, table, positions, 4);
    check.run(nn::gelu(check.builder, "y", x, nn::Gelu::tanh));
  }
}

// One table embeds and, transposed, is the head.
TEST(Embedding, TiedTableGradientsMatchDifferences) {
  test::GradientCheck check;
  Value tokens = check.integers("tokens", {8}, 5);
  Value table = check.variable("table", {5, 3});
  Value x = nn::embedding(check.builder, "x", tokens, table, {}, 4);
  check.run(nn::linear(check.builder, "y", nn::gelu(check.builder, "g", x, nn::Gelu::tanh), table, {}, true));
}

TEST(Embedding, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  Value tokens = b.input("tokens", {8});
  Value x = nn::embedding(b, "x", tokens, b.parameter("table", {5, 3}, {}),
                          b.parameter("positions", {4, 3}, {}), 4);
  Graph graph = b.finish_without_update(test::weighted_sum(b, x));
  EXPECT_THAT(test::op_names(graph),
              ElementsAre("x", "loss", "loss.backward", "x.backward", "x.backward_positions"));
  EXPECT_EQ(graph.ops[0].kernel, "embedding");
  EXPECT_EQ(graph.ops[0].attributes, (Attributes{{"sequence", std::int64_t{4}}}));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].reads), ElementsAre("tokens", "table", "positions"));
  EXPECT_EQ(graph.ops[0].cost, (OpCost{24, 4.0 * 8 + 8.0 * 3 * 24}));
  EXPECT_EQ(graph.ops[3].kernel, "embedding_backward");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("tokens", "x.grad"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].writes), ElementsAre("table.grad"));
  EXPECT_EQ(graph.ops[4].kernel, "position_backward");
  EXPECT_EQ(graph.ops[4].attributes, (Attributes{{"sequence", std::int64_t{4}}}));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[4].writes), ElementsAre("positions.grad"));
}

TEST(Embedding, RefusesShapesThatDoNotFit) {
  GraphBuilder b;
  Value tokens = b.input("tokens", {8});
  Value table = b.parameter("table", {5, 3}, {});
  test::expect_refused([&] { nn::embedding(b, "x", table, table, {}, 4); },
                       "x: the tokens 'table' is f32 [5, 3]");
  test::expect_refused([&] { nn::embedding(b, "x", tokens, tokens, {}, 4); },
                       "x: the table 'tokens' is i32 [8]");
  test::expect_refused([&] { nn::embedding(b, "x", tokens, table, table, 4); }, "x: the positions 'table'");
  test::expect_refused([&] { nn::embedding(b, "x", tokens, table, {}, 3); },
                       "x: the tokens are no whole number");
  test::expect_refused([&] { nn::embedding(b, "x", tokens, table, {}, 0); },
                       "x: the tokens are no whole number");
}

}  // namespace
}  // namespace stowage
