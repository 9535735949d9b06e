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

void set_rows(Evaluator& evaluator, Value rows, std::vector<std::int32_t> values) {
  std::copy(values.begin(), values.end(), test::elements_of<std::int32_t>(evaluator.value(rows.id)));
}

TEST(KeptRows, GradientsMatchDifferences) {
  test::GradientCheck check;
  Value x = check.variable("x", {6, 4});
  Value y = check.variable("y", {2, 4});
  Value rows = check.integers("rows", {2}, 1);
  GraphBuilder& b = check.builder;
  Value taken = nn::gelu(b, "bent", nn::take_rows(b, "taken", x, rows), nn::Gelu::tanh);
  Value sum = nn::add_rows(b, "sum", x, nn::add(b, "y.sum", taken, y), rows);
  check.run_loss(test::weighted_sum(b, nn::gelu(b, "last", sum, nn::Gelu::tanh)), {},
                 [&](Evaluator& evaluator) {
                   set_rows(evaluator, rows, {1, 4});
                 });
}

// take_rows alone gives x its gradient.
TEST(KeptRows, GradientOfTakenRowsMatchesDifferences) {
  test::GradientCheck check;
  Value x = check.variable("x", {6, 4});
  Value rows = check.integers("rows", {2}, 1);
  GraphBuilder& b = check.builder;
  Value taken = nn::take_rows(b, "taken", nn::gelu(b, "bent", x, nn::Gelu::tanh), rows);
  check.run_loss(test::weighted_sum(b, taken), {}, [&](Evaluator& evaluator) {
    set_rows(evaluator, rows, {0, 5});
  });
}

// The choice is held fast by a step that is small beside the scores' distances.
TEST(KeptRows, GradientsOfABranchThatKeepsTokensMatchDifferences) {
  test::GradientCheck check;
  GraphBuilder& b = check.builder;
  Value qkv = check.variable("qkv", {2 * 5, 3 * 8});
  Value seen = check.integers("seen", {10}, 1);
  const nn::ScoredAttention made =
      nn::scored_attention(b, "att", qkv, {.heads = 2, .sequence = 5, .causal = false, .seen = seen});
  Value rows = nn::top_tokens(b, "kept", made.scores, seen, 5, 2);
  Value taken = nn::gelu(b, "bent", nn::take_rows(b, "taken", made.y, rows), nn::Gelu::erf);
  Value sum = nn::add_rows(b, "sum", made.y, nn::dropout(b, "dropped", taken, 0.3), rows);
  check.run_loss(test::weighted_sum(b, sum), {.step = 1e-4, .tolerance = 1e-5}, [&](Evaluator& evaluator) {
    set_rows(evaluator, seen, {1, 1, 0, 1, 1, 1, 1, 1, 1, 0});
  });
}

TEST(KeptRows, EmitTheContractsOps) {
  GraphBuilder b;
  Value x = nn::gelu(b, "x", b.parameter("w", {6, 4}, {}), nn::Gelu::tanh);
  Value rows = b.input("rows", {2});
  Value y = nn::gelu(b, "y", nn::take_rows(b, "taken", x, rows), nn::Gelu::tanh);
  Value sum = nn::gelu(b, "last", nn::add_rows(b, "sum", x, y, rows), nn::Gelu::tanh);
  Graph graph = b.finish_without_update(nn::cross_entropy(b, "loss", sum, b.input("targets", {6})));
  EXPECT_THAT(test::op_names(graph),
              ElementsAre("x", "taken", "y", "sum", "last", "loss", "loss.backward", "last.backward",
                          "sum.backward", "y.backward", "taken.backward", "x.backward"));
  const Op& taken = graph.ops[1];
  EXPECT_EQ(taken.kernel, "take_rows");
  EXPECT_EQ(graph.tensor(taken.writes[0]).shape, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(taken.cost.bytes, 2 * 2 * 4 * 4 + 2 * 4);
  EXPECT_EQ(graph.ops[3].kernel, "add_rows");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("x", "y", "rows"));
  EXPECT_THAT(graph.ops[3].may_alias, IsEmpty());
  EXPECT_EQ(graph.ops[8].kernel, "take_rows");
  EXPECT_THAT(test::tensor_names(graph, graph.ops[8].reads), ElementsAre("sum.grad", "rows"));
  // The rows' gradient is added to the residual's, in place.
  const Op& added = graph.ops[10];
  EXPECT_EQ(added.kernel, "add_rows");
  EXPECT_THAT(test::tensor_names(graph, added.reads), ElementsAre("sum.grad", "taken.grad", "rows"));
  EXPECT_EQ(added.may_alias, (std::vector<Alias>{{0, 0}}));
}

TEST(KeptRows, GradientOfTakenRowsAloneHasZerosElsewhere) {
  GraphBuilder b(DataType::f64);
  Value y = nn::take_rows(b, "y", b.parameter("x", {6, 4}, {}), b.input("rows", {2}));
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_EQ(graph.ops.back().kernel, "take_rows_backward");
  EXPECT_THAT(test::tensor_names(graph, graph.ops.back().reads), ElementsAre("y.grad", "rows"));
}

// Rows are those of the micro-batch, and padding is the whole batch's.
TEST(KeptRows, AreAMicroBatchs) {
  GraphBuilder b;
  b.split_batch(2);
  Value tokens = b.input("tokens", {20});
  Value seen = b.input("seen", {20});
  Value loss;
  for (std::uint32_t part = 0; part < 2; ++part) {
    b.begin_unit("all", part);
    Value qkv = nn::embedding(b, "qkv", tokens, b.parameter("table", {7, 24}, {}), {}, 5);
    const nn::ScoredAttention made =
        nn::scored_attention(b, "att", qkv, {.heads = 2, .sequence = 5, .causal = false, .seen = seen});
    Value rows = nn::top_tokens(b, "kept", made.scores, seen, 5, 3);
    Value y = nn::add_rows(b, "sum", made.y, nn::take_rows(b, "taken", made.y, rows), rows);
    loss = b.sum_loss(nn::cross_entropy(b, "loss", y, tokens));
  }
  const Graph graph = b.finish_without_update(loss);
  for (const char* name : {"micro.1.att.scores", "micro.1.kept"}) {
    const Op& op = graph.op(test::op_named(graph, name));
    EXPECT_EQ(graph.tensor(op.reads.back()).name, "seen");
    EXPECT_EQ(op.attributes.at("first_token"), Attribute(std::int64_t{10}));
  }
  const Tensor& rows = graph.tensor(test::tensor_named(graph, "micro.1.kept"));
  EXPECT_EQ(rows.shape, (std::vector<std::int64_t>{6}));
  EXPECT_EQ(rows.type, DataType::i32);
}

TEST(KeptRows, ScoresCostOneProductAndTheSoftmax) {
  GraphBuilder b(DataType::bf16);
  Value qkv = b.parameter("qkv", {200, 24}, {});
  nn::scored_attention(b, "y", qkv, {.heads = 2, .sequence = 100, .causal = false});
  Value loss = b.activation("loss", {}, DataType::f64);
  b.op({"loss", "none", {}, {}, {loss}, {}, {}});
  const Graph graph = b.finish_without_update(loss);
  const Op& scores = graph.op(test::op_named(graph, "y.scores"));
  EXPECT_EQ(scores.kernel, "attention_scores");
  EXPECT_DOUBLE_EQ(scores.cost.flops, 2.0 * 200 * 8 * 100 + 5.0 * 200 * 2 * 100);
  EXPECT_EQ(scores.attributes, graph.ops[0].attributes);
  EXPECT_THAT(test::tensor_names(graph, scores.reads), ElementsAre("qkv", "y.log_sum_exp"));
  EXPECT_EQ(graph.tensor(scores.writes[0]).type, DataType::f32);
  EXPECT_EQ(graph.tensor(scores.writes[1]).bytes(), Bytes{2 * 2 * 100 * 4});
}

// No gradient goes through the scores: a loss that needs one is refused.
TEST(KeptRows, ScoresHaveNoGradient) {
  GraphBuilder b;
  const Value qkv = b.parameter("qkv", {10, 24}, {0, 1});
  const nn::ScoredAttention made = nn::scored_attention(b, "att", qkv, {.heads = 2, .sequence = 5});
  const Value loss = test::weighted_sum(b, made.scores);
  test::expect_refused([&] { b.finish_without_update(loss); }, "has no backward rule");
}

TEST(KeptRows, RefuseWhatDoesNotFit) {
  GraphBuilder b;
  Value qkv = b.activation("qkv", {10, 24});
  Value scores = b.activation("scores", {10});
  Value x = b.activation("x", {10, 4});
  Value rows = b.input("rows", {4});
  test::expect_refused([&] { nn::scored_attention(b, "att", qkv, {.heads = 2, .sequence = 5, .window = 2}); },
                       "att: scores take neither a window nor documents");
  test::expect_refused([&] { nn::top_tokens(b, "top", scores, {}, 4, 1); }, "top: the tokens are no whole");
  for (const std::int64_t keep : {0, 6})
    test::expect_refused([&] { nn::top_tokens(b, "top", scores, {}, 5, keep); }, "top: a sample keeps 1 to");
  test::expect_refused([&] { nn::top_tokens(b, "top", scores, rows, 5, 1); }, "top: the padding 'rows'");
  test::expect_refused([&] { nn::take_rows(b, "take", x, scores); }, "take: the kept rows 'scores'");
  test::expect_refused([&] { nn::add_rows(b, "add", x, x, rows); }, "add: the kept tokens 'x'");
}

}  // namespace
}  // namespace stowage
