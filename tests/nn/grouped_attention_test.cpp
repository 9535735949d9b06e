// Attention with grouped queries, windows and packed documents as graph nodes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

// Four query heads and two key heads of three columns, with documents that begin within the samples.
TEST(GroupedAttention, GradientsMatchDifferences) {
  for (const double dropout : {0.0, 0.3}) {
    test::GradientCheck check;
    const Value qkv = check.variable("qkv", {2 * 7, (4 + 2 * 2) * 3});
    const Value begins = check.integers("begins", {14}, 1);  // zeros, until they are set
    const Value y = nn::attention(
        check.builder, "y", qkv,
        {.heads = 4, .sequence = 7, .dropout = dropout, .key_heads = 2, .window = 3, .begins = begins});
    check.run_loss(test::weighted_sum(check.builder, y), {}, [&](Evaluator& evaluator) {
      auto* values = test::elements_of<std::int32_t>(evaluator.value(begins.id));
      std::fill(values + 2, values + 7, 2);
      std::fill(values + 7 + 6, values + 14, 6);
    });
  }
}

// The trunk's width is no part of it: 4 heads of 8 columns.
TEST(GroupedAttention, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  const Value qkv = b.parameter("qkv", {10, (4 + 2 * 2) * 8}, {});
  const Value y = nn::attention(b, "y", qkv, {.heads = 4, .sequence = 5, .key_heads = 2, .window = 3});
  const Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  const Op& forward = graph.ops[0];
  EXPECT_EQ(graph.tensor(forward.writes[0]).shape, (std::vector<std::int64_t>{10, 32}));
  EXPECT_EQ(graph.tensor(forward.writes[1]).shape, (std::vector<std::int64_t>{2, 4, 5}));
  EXPECT_EQ(forward.attributes.at("heads"), Attribute(std::int64_t{4}));
  EXPECT_EQ(forward.attributes.at("key_heads"), Attribute(std::int64_t{2}));
  EXPECT_EQ(forward.attributes.at("window"), Attribute(std::int64_t{3}));
  EXPECT_FALSE(forward.attributes.contains("documents"));
  const Op& backward = graph.op(test::op_named(graph, "y.backward"));
  EXPECT_EQ(backward.attributes, forward.attributes);
  EXPECT_EQ(graph.tensor(backward.writes[0]).shape, graph.tensor(qkv.id).shape);
}

TEST(GroupedAttention, SaysNothingOfWhatIsNotThere) {
  GraphBuilder b(DataType::f64);
  const Value qkv = b.parameter("qkv", {10, 24}, {});
  const Value y = nn::attention(b, "y", qkv, {.heads = 2, .sequence = 5, .key_heads = 2, .window = 5});
  const Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  for (const char* attribute : {"key_heads", "window", "documents", "first_token"})
    EXPECT_FALSE(graph.ops[0].attributes.contains(attribute)) << attribute;
}

// A window of 10 of 100 keys leaves 1 + 2 + … + 9 + 91 * 10 pairs.
TEST(GroupedAttention, AWindowLeavesItsPairsOfTheWork) {
  const auto flops = [](std::int64_t window) {
    GraphBuilder b;
    nn::attention(b, "y", b.parameter("qkv", {200, (4 + 2) * 6}, {}),
                  {.heads = 4, .sequence = 100, .key_heads = 1, .window = window});
    const Value loss = b.activation("loss", {}, DataType::f64);
    b.op({"loss", "none", {}, {}, {loss}, {}, {}});
    return b.finish_without_update(loss).ops[0].cost.flops;
  };
  EXPECT_DOUBLE_EQ(flops(0), (4.0 * 6 + 5) * 200 * 4 * 101 / 2);
  EXPECT_DOUBLE_EQ(flops(100), flops(0));
  EXPECT_DOUBLE_EQ(flops(10) / flops(0), (45.0 + 910) / 5050);
}

// Two samples' four heads of one tile of 128 queries, and gradients of 128 keys and values of each head.
TEST(GroupedAttention, GivesAFusedBackwardItsWorkspace) {
  GraphBuilder b(DataType::bf16);
  const Value qkv = b.parameter("qkv", {10, (4 + 2 * 2) * 8}, {});
  const Value y = nn::attention(b, "y", qkv, {.heads = 4, .sequence = 5, .key_heads = 2});
  const Graph graph = b.finish_without_update(nn::cross_entropy(b, "loss", y, b.input("targets", {10})));
  const Op& backward = graph.op(test::op_named(graph, "y.backward"));
  ASSERT_EQ(backward.writes.size(), 2U);
  EXPECT_EQ(graph.tensor(backward.writes[1]).bytes(),
            Bytes{8 * (2 * 128 * 128 + 4 * 128 + 2 * 128 * 8 * 2) + (1 << 20)});
}

// Documents go to both ops, and no fused kernel's workspace.
TEST(GroupedAttention, ReadsTheDocumentsOfItsMicroBatch) {
  GraphBuilder b(DataType::bf16);
  b.split_batch(2);
  const Value tokens = b.input("tokens", {20}), begins = b.input("begins", {20});
  Value loss;
  for (std::uint32_t part = 0; part < 2; ++part) {
    b.begin_unit("all", part);
    const Value qkv = nn::embedding(b, "qkv", tokens, b.parameter("table", {7, 24}, {}), {}, 5);
    const Value y = nn::attention(b, "att", qkv, {.heads = 2, .sequence = 5, .begins = begins});
    const Value mean = nn::cross_entropy(b, "loss", y, tokens);
    loss = part == 0 ? mean : b.add_loss(loss, mean);
  }
  const Graph graph = b.finish_without_update(loss);
  for (const char* name : {"micro.1.att", "micro.1.att.backward"}) {
    const Op& op = graph.op(test::op_named(graph, name));
    EXPECT_EQ(graph.tensor(op.reads.back()).name, "begins");
    EXPECT_EQ(op.attributes.at("documents"), Attribute(std::int64_t{1}));
    EXPECT_EQ(op.attributes.at("first_token"), Attribute(std::int64_t{10}));
  }
  EXPECT_EQ(graph.op(test::op_named(graph, "micro.0.att.backward")).writes.size(), 1U);
}

TEST(GroupedAttention, RefusesWhatDoesNotFit) {
  GraphBuilder b;
  const Value qkv = b.activation("qkv", {10, 24});
  const Value marks = b.input("marks", {10}), few = b.input("few", {9});
  const auto expect = [&](const nn::AttentionOptions& options, const std::string& complaint) {
    test::expect_refused([&] { nn::attention(b, "att", qkv, options); }, complaint);
  };
  expect({.heads = 4, .sequence = 5, .key_heads = 3}, "att: the heads are no multiple of the key heads");
  expect({.heads = 4, .sequence = 5, .key_heads = -2}, "att: the heads are no multiple of the key heads");
  expect({.heads = 0, .sequence = 5, .key_heads = 2}, "att: the heads are no multiple of the key heads");
  expect({.heads = 3, .sequence = 5, .key_heads = 1},
         "att: queries, keys and values do not divide into heads");
  expect({.heads = 2, .sequence = 5, .window = -1}, "att: the window is negative");
  expect({.heads = 2, .sequence = 5, .causal = false, .window = 2}, "need a causal mask");
  expect({.heads = 2, .sequence = 5, .causal = false, .begins = marks}, "need a causal mask");
  expect({.heads = 2, .sequence = 5, .seen = marks, .window = 2}, "take no padding");
  expect({.heads = 2, .sequence = 5, .seen = marks, .begins = marks}, "take no padding");
  expect({.heads = 2, .sequence = 5, .begins = few},
         "att: the documents' begins 'few' is i32 [9]; give it i32 [10]");
}

}  // namespace
}  // namespace stowage
