#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

class AttentionGradients : public testing::TestWithParam<std::tuple<bool, double>> {};

TEST_P(AttentionGradients, MatchDifferences) {
  auto [causal, dropout] = GetParam();
  test::GradientCheck check;
  Value qkv = check.variable("qkv", {2 * 5, 3 * 8});
  check.run(nn::attention(check.builder, "y", qkv,
                          {.heads = 2, .sequence = 5, .causal = causal, .dropout = dropout}));
}

INSTANTIATE_TEST_SUITE_P(Attention, AttentionGradients,
                         testing::Combine(testing::Bool(), testing::Values(0.0, 0.3)), [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "Causal" : "Bidirectional") +
                                  (std::get<1>(info.param) > 0 ? "WithDropout" : "");
                         });

TEST(Attention, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  Value qkv = b.parameter("qkv", {10, 24}, {});
  Value y = nn::attention(b, "y", qkv, {.heads = 2, .sequence = 5, .causal = true, .dropout = 0.25});
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward"));
  const Op& forward = graph.ops[0];
  EXPECT_EQ(forward.kernel, "attention");
  EXPECT_THAT(test::tensor_names(graph, forward.writes), ElementsAre("y", "y.log_sum_exp"));
  EXPECT_EQ(graph.tensor(forward.writes[0]).shape, (std::vector<std::int64_t>{10, 8}));
  EXPECT_EQ(graph.tensor(forward.writes[1]).shape, (std::vector<std::int64_t>{2, 2, 5}));
  EXPECT_EQ(std::get<std::int64_t>(forward.attributes.at("heads")), 2);
  EXPECT_EQ(std::get<std::int64_t>(forward.attributes.at("sequence")), 5);
  EXPECT_EQ(std::get<std::int64_t>(forward.attributes.at("causal")), 1);
  EXPECT_EQ(std::get<double>(forward.attributes.at("dropout")), 0.25);
  EXPECT_TRUE(forward.attributes.contains("key"));
  const Op& backward = graph.ops[3];
  EXPECT_EQ(backward.kernel, "attention_backward");
  EXPECT_EQ(backward.attributes, forward.attributes);
  EXPECT_THAT(test::tensor_names(graph, backward.reads), ElementsAre("qkv", "y", "y.log_sum_exp", "y.grad"));
}

TEST(Attention, ACausalMaskLeavesHalfTheWork) {
  auto flops = [](bool causal) {
    GraphBuilder b;
    nn::attention(b, "y", b.parameter("qkv", {200, 24}, {}), {.heads = 2, .sequence = 100, .causal = causal});
    Value loss = b.activation("loss", {}, DataType::f64);
    b.op({"loss", "none", {}, {}, {loss}, {}, {}});
    return b.finish_without_update(loss).ops[0].cost.flops;
  };
  EXPECT_DOUBLE_EQ(flops(true) / flops(false), 101.0 / 200);
  double products = 4.0 * 200 * 8 * 100;
  double softmax = 5.0 * 200 * 2 * 100;
  EXPECT_DOUBLE_EQ(flops(false), products + softmax);
}

TEST(Attention, EveryOpDrawsItsOwnDropout) {
  GraphBuilder b;
  Value qkv = b.parameter("qkv", {10, 24}, {});
  nn::AttentionOptions options{.heads = 2, .sequence = 5, .causal = true, .dropout = 0.5};
  Value one = nn::attention(b, "one", qkv, options);
  Value two = nn::attention(b, "two", qkv, options);
  Value loss = nn::cross_entropy(b, "loss", nn::add(b, "sum", one, two), b.input("targets", {10}));
  Graph graph = b.finish_without_update(loss);
  EXPECT_NE(graph.ops[0].attributes.at("key"), graph.ops[1].attributes.at("key"));
}

// Two heads at once of one tile of 128 queries each, in bf16 alone.
TEST(Attention, GivesAFusedBackwardItsWorkspace) {
  for (DataType type : {DataType::f32, DataType::bf16}) {
    GraphBuilder b(type);
    Value qkv = b.parameter("qkv", {5, 24}, {});
    Value y = nn::attention(b, "att", qkv, {.heads = 2, .sequence = 5});
    Graph graph = b.finish_without_update(nn::cross_entropy(b, "loss", y, b.input("targets", {5})));
    const Op& backward = graph.ops.back();
    ASSERT_EQ(backward.kernel, "attention_backward");
    ASSERT_EQ(backward.writes.size(), type == DataType::bf16 ? 2U : 1U);
    if (type == DataType::f32) continue;
    const Tensor& workspace = graph.tensor(backward.writes[1]);
    EXPECT_EQ(workspace.kind, TensorKind::workspace);
    EXPECT_EQ(workspace.bytes(), Bytes{2 * (2 * 128 * 128 + 4 * 128) + (1 << 20)});
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  GraphBuilder b;
  Value qkv = b.activation("qkv", {10, 24});
  Value odd = b.activation("odd", {10, 25});
  test::expect_refused([&] { nn::attention(b, "att", odd, {.heads = 1, .sequence = 5}); },
                       "att: queries, keys");
  test::expect_refused([&] { nn::attention(b, "att", qkv, {.heads = 3, .sequence = 5}); },
                       "divisible by the heads");
  test::expect_refused([&] { nn::attention(b, "att", qkv, {.heads = 0, .sequence = 5}); },
                       "divisible by the heads");
  test::expect_refused([&] { nn::attention(b, "att", qkv, {.heads = 2, .sequence = 4}); },
                       "whole number of sequences");
  test::expect_refused([&] { nn::attention(b, "att", qkv, {.heads = 2, .sequence = 5, .dropout = 1}); },
                       "att: the dropout probability");
  Value few = b.input("few", {9});
  test::expect_refused([&] { nn::attention(b, "att", qkv, {.heads = 2, .sequence = 5, .seen = few}); },
                       "att: the padding 'few' is i32 [9]; give it i32 [10]");
}

TEST(Attention, GradientsWithPaddingMatchDifferences) {
  for (bool causal : {false, true}) {
    test::GradientCheck check;
    Value qkv = check.variable("qkv", {2 * 5, 3 * 8});
    Value seen = check.integers("seen", {10}, 1);  // zeros, until they are set
    Value y = nn::attention(check.builder, "y", qkv,
                            {.heads = 2, .sequence = 5, .causal = causal, .dropout = 0.3, .seen = seen});
    check.run_loss(test::weighted_sum(check.builder, y), {}, [&](Evaluator& evaluator) {
      auto* values = test::elements_of<std::int32_t>(evaluator.value(seen.id));
      for (int position : {0, 2, 3, 5, 6}) values[position] = 1;
    });
  }
}

// Fused kernels take padding at the end alone, and no dropout.
TEST(Attention, GivesWhatNoFusedKernelComputesNoWorkspace) {
  const auto backward = [](bool padded, bool at_end, double dropout) {
    GraphBuilder b(DataType::bf16);
    const Value qkv = b.parameter("qkv", {10, 24}, {});
    const Value y = nn::attention(b, "att", qkv,
                                  {.heads = 2,
                                   .sequence = 5,
                                   .dropout = dropout,
                                   .seen = padded ? b.input("seen", {10}) : Value{},
                                   .padding_at_end = at_end});
    const Graph graph = b.finish_without_update(nn::cross_entropy(b, "loss", y, b.input("targets", {10})));
    return graph.op(test::op_named(graph, "att.backward"));
  };
  EXPECT_EQ(backward(true, true, 0).writes.size(), 2U);
  EXPECT_EQ(backward(true, true, 0).attributes.at("padding_at_end"), Attribute(std::int64_t{1}));
  EXPECT_EQ(backward(true, false, 0).writes.size(), 1U);
  EXPECT_FALSE(backward(true, false, 0).attributes.contains("padding_at_end"));
  EXPECT_EQ(backward(false, false, 0.1).writes.size(), 1U);
  EXPECT_EQ(backward(true, true, 0.1).writes.size(), 1U);
}

// Padding goes to both ops, and no fused kernel's workspace.
TEST(Attention, ReadsThePaddingOfItsMicroBatch) {
  GraphBuilder b(DataType::bf16);
  b.split_batch(2);
  Value tokens = b.input("tokens", {20});
  Value seen = b.input("seen", {20});
  Value loss;
  for (std::uint32_t part = 0; part < 2; ++part) {
    b.begin_unit("all", part);
    Value qkv = nn::embedding(b, "qkv", tokens, b.parameter("table", {7, 24}, {}), {}, 5);
    Value y = nn::attention(b, "att", qkv, {.heads = 2, .sequence = 5, .seen = seen});
    Value mean = nn::cross_entropy(b, "loss", y, tokens);
    loss = part == 0 ? mean : b.add_loss(loss, mean);
  }
  Graph graph = b.finish_without_update(loss);
  for (const char* name : {"micro.1.att", "micro.1.att.backward"}) {
    const Op& op = graph.op(test::op_named(graph, name));
    EXPECT_EQ(graph.tensor(op.reads.back()).name, "seen");
    EXPECT_EQ(op.attributes.at("first_token"), Attribute(std::int64_t{10}));
  }
  EXPECT_EQ(graph.op(test::op_named(graph, "micro.0.att.backward")).writes.size(), 1U);
}

}  // namespace
}  // namespace stowage
