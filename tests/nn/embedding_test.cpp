#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

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

struct EmbeddingResult {
  std::vector<std::byte> y, dtable;
  friend bool operator==(const EmbeddingResult&, const EmbeddingResult&) = default;
};

// The embedding of a table of 21 rows, of which the last two are padding, and its gradient. `begins`: the
// first rows of its blocks, in the order in which they are chained; none: the table is whole.
EmbeddingResult embedded(DataType type, std::vector<std::int64_t> begins, std::uint32_t parts = 1) {
  constexpr std::int64_t rows = 21, tokens = 40, width = 7;
  GraphBuilder b(type);
  b.split_batch(parts);
  const Value token = b.input("tokens", {tokens}), targets = b.input("targets", {tokens});
  std::vector<nn::TableBlock> blocks;
  for (const std::int64_t begin : begins) {
    std::int64_t end = rows;
    for (const std::int64_t other : begins)
      if (other > begin) end = std::min(end, other);
    blocks.push_back({b.parameter("rows." + std::to_string(begin), {end - begin, width}, {}), begin, 19});
  }
  const Value table = begins.empty() ? b.parameter("table", {rows, width}, {}) : Value{};
  std::vector<Value> y(parts);
  Value loss;
  for (std::uint32_t part = 0; part < parts; ++part) {
    b.begin_unit("all", part);
    if (begins.empty()) y[part] = nn::embedding(b, "y", token, table, {}, 1);
    for (const nn::TableBlock& block : blocks)
      y[part] = nn::embedding_rows(b, "y." + std::to_string(block.first), token, block, y[part]);
    loss = b.sum_loss(nn::cross_entropy(b, "loss", y[part], targets));
  }
  Evaluator evaluator(b.finish_without_update(loss), cpu_launch_table(), 3);
  test::fill_tokens(evaluator, token.id, 19, 1);
  test::fill_tokens(evaluator, targets.id, width, 2);
  std::vector<std::byte> whole(rows * width * size_of(type));
  initialize({"table", type, {rows, width}, TensorKind::parameter, {0, 1}}, 3, whole);
  const auto at = [&](const nn::TableBlock& block) {
    return static_cast<std::size_t>(block.first * width) * size_of(type);
  };
  if (table) evaluator.value(table.id) = whole;
  for (const nn::TableBlock& block : blocks) {
    std::vector<std::byte>& value = evaluator.value(block.rows.id);
    std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(at(block)), value.size(), value.begin());
  }
  evaluator.run(0, 0);
  EmbeddingResult result{{}, std::vector<std::byte>(whole.size())};
  for (const Value part : y)
    result.y.insert(result.y.end(), evaluator.value(part.id).begin(), evaluator.value(part.id).end());
  if (table) result.dtable = evaluator.value(b.gradient_of(table));
  for (const nn::TableBlock& block : blocks)
    std::ranges::copy(evaluator.value(b.gradient_of(block.rows)),
                      result.dtable.begin() + static_cast<std::ptrdiff_t>(at(block)));
  return result;
}

// Blocks of any length, in any order, have the bits of the whole table: a row's gradient is summed in the
// same order.
TEST(EmbeddingRows, ChainedAreTheEmbeddingOfTheWholeTable) {
  for (const DataType type : {DataType::f32, DataType::f64, DataType::bf16, DataType::f16}) {
    for (const std::uint32_t parts : {1U, 2U, 4U}) {
      const EmbeddingResult whole = embedded(type, {}, parts);
      for (const std::vector<std::int64_t>& begins :
           {std::vector<std::int64_t>{0}, {0, 8, 16}, {0, 5, 18}, {9, 0, 15}})
        EXPECT_TRUE(embedded(type, begins, parts) == whole)
            << to_string(type) << ", " << begins.size() << " blocks, " << parts << " micro-batches";
    }
  }
}

TEST(EmbeddingRows, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  const Value tokens = b.input("tokens", {8});
  const Value first = nn::embedding_rows(b, "x", tokens, {b.parameter("first", {4, 3}, {}), 0, 6}, {});
  const Value y = nn::embedding_rows(b, "y", tokens, {b.parameter("second", {3, 3}, {}), 4, 6}, first);
  const Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph),
              ElementsAre("x", "y", "loss", "loss.backward", "y.backward", "x.backward"));
  EXPECT_EQ(graph.ops[0].kernel, "embedding");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].reads), ElementsAre("tokens", "first"));
  EXPECT_EQ(graph.ops[0].cost, (OpCost{0, 4.0 * 8 + 2 * 8.0 * 24}));
  EXPECT_TRUE(graph.ops[0].may_alias.empty());
  EXPECT_EQ(graph.ops[1].attributes,
            (Attributes{{"first_row", std::int64_t{4}}, {"vocabulary", std::int64_t{6}}}));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[1].reads), ElementsAre("tokens", "second", "x"));
  EXPECT_EQ(graph.ops[1].cost, (OpCost{0, 4.0 * 8 + 8.0 * 24}));  // half of the tokens are expected there
  EXPECT_THAT(graph.ops[1].may_alias, ElementsAre(Alias{0, 2}));
  EXPECT_EQ(graph.ops[4].kernel, "embedding_backward");
  EXPECT_EQ(graph.ops[4].attributes, graph.ops[1].attributes);
  for (const OpId op : {4U, 5U})
    EXPECT_THAT(test::tensor_names(graph, graph.ops[op].reads), ElementsAre("tokens", "y.grad"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[5].writes), ElementsAre("first.grad"));
}

TEST(EmbeddingRows, RefusesWhatDoesNotFit) {
  GraphBuilder b;
  const Value tokens = b.input("tokens", {8});
  const Value rows = b.parameter("rows", {4, 3}, {});
  test::expect_refused(
      [&] {
        nn::embedding_rows(b, "x", rows, {rows, 0, 6}, {});
      },
      "x: the tokens 'rows' is f32 [4, 3]");
  test::expect_refused(
      [&] {
        nn::embedding_rows(b, "x", tokens, {tokens, 0, 6}, {});
      },
      "x: the block 'tokens' is i32 [8]; give it f32 [any, any]");
  for (const std::int64_t first : {6, 9, -1})
    test::expect_refused(
        [&] {
          nn::embedding_rows(b, "x", tokens, {rows, first, 6}, {});
        },
        "x: a block from row " + std::to_string(first) + " on is in no table of 6 tokens");
  test::expect_refused(
      [&] {
        nn::embedding_rows(b, "x", tokens, {rows, 0, 6}, rows);
      },
      "x: the result before 'rows' is f32 [4, 3]; give it f32 [8, 3]");
}

// Tokens of other blocks are no misuse; tokens behind the vocabulary are, even where the block has their row.
TEST(EmbeddingRows, RefusesATokenOutsideTheVocabulary) {
  const auto run = [](
                       std::int32_t token, const std::function<void(Graph&)>& change = [](Graph&) {}) {
    GraphBuilder b;
    const Value tokens = b.input("tokens", {8});
    const Value x = nn::embedding_rows(b, "x", tokens, {b.parameter("rows", {4, 3}, {}), 3, 6}, {});
    Graph graph = b.finish_without_update(nn::cross_entropy(b, "loss", x, b.input("targets", {8})));
    change(graph);
    Evaluator evaluator(graph, cpu_launch_table(), 3);
    test::elements_of<std::int32_t>(evaluator.value(tokens.id))[2] = token;
    evaluator.run(0, 0);
  };
  run(0);
  run(5);
  for (const std::int32_t token : {6, 7, -1})
    test::expect_refused([&] { run(token); },
                         "token " + std::to_string(token) + " at position 2 is outside the table of 6 rows");
  test::expect_refused(
      [&] { run(0, [](Graph& graph) { graph.ops[0].attributes["first_row"] = std::int64_t{6}; }); },
      "op 'x' (kernel 'embedding') has a block that begins behind the table");
}

}  // namespace
}  // namespace stowage
