#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "stowage/nn.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

// Two samples of 3 tokens, 2 query heads and 1 key head of 4 elements.
constexpr nn::RotaryOptions small_rotary{.heads = 2, .key_heads = 1, .sequence = 3, .theta = 10};

TEST(Rotary, GradientsMatchDifferences) {
  for (const bool with_begins : {false, true}) {
    test::GradientCheck check;
    nn::RotaryOptions options = small_rotary;
    if (with_begins) options.begins = check.integers("begins", {6}, 2);
    options.scaling = {.factor = 2, .original_positions = 20};
    Value qkv = check.variable("qkv", {6, 16});
    check.run(nn::tanh(check.builder, "y", nn::rotary(check.builder, "turned", qkv, options)));
  }
}

TEST(Rotary, GradientsOfNormsMatchDifferences) {
  for (const double epsilon : {1e-6, 0.5}) {
    test::GradientCheck check;
    nn::RotaryOptions options = small_rotary;
    options.begins = check.integers("begins", {6}, 2);
    options.query_gain = check.variable("query_gain", {4});
    options.key_gain = check.variable("key_gain", {4});
    options.epsilon = epsilon;
    Value qkv = check.variable("qkv", {6, 16});
    check.run(nn::tanh(check.builder, "y", nn::rotary(check.builder, "turned", qkv, options)));
  }
}

// qkv is no operand of backward, so that it need not be kept.
TEST(Rotary, EmitsTheContractsOps) {
  GraphBuilder b(DataType::f64);
  nn::RotaryOptions options = small_rotary;
  options.begins = b.input("begins", {6});
  Value y = nn::rotary(b, "y", b.parameter("qkv", {6, 16}, {}), options);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::op_names(graph), ElementsAre("y", "loss", "loss.backward", "y.backward"));
  const Attributes attributes{{"heads", std::int64_t{2}},
                              {"key_heads", std::int64_t{1}},
                              {"sequence", std::int64_t{3}},
                              {"theta", 10.0}};
  EXPECT_EQ(graph.ops[0].kernel, "rotary");
  EXPECT_EQ(graph.ops[0].attributes, attributes);
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].reads), ElementsAre("qkv", "begins"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[0].writes), ElementsAre("y"));
  EXPECT_TRUE(graph.ops[0].may_alias.empty());
  EXPECT_TRUE(graph.ops[0].replayable);
  EXPECT_EQ(graph.ops[0].cost.bytes, 2 * 6 * 16 * 8 + 6 * 4);
  EXPECT_EQ(graph.ops[0].cost.flops, 3 * 6 * 12 + 40 * 6 * 2);
  EXPECT_EQ(graph.ops[3].kernel, "rotary_backward");
  EXPECT_EQ(graph.ops[3].attributes, attributes);
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].reads), ElementsAre("y.grad", "begins"));
  EXPECT_THAT(test::tensor_names(graph, graph.ops[3].writes), ElementsAre("qkv.grad"));
  EXPECT_THAT(graph.ops[3].may_alias, ElementsAre(Alias{0, 0}));
}

TEST(Rotary, EmitsTheContractsOpsWithNorms) {
  GraphBuilder b(DataType::bf16);
  nn::RotaryOptions options = small_rotary;
  options.query_gain = b.parameter("query_gain", {4}, {});
  options.key_gain = b.parameter("key_gain", {4}, {});
  options.begins = b.input("begins", {6});
  options.scaling = nn::RotaryScaling{};
  Value y = nn::rotary(b, "y", b.parameter("qkv", {6, 16}, {}), options);
  Value loss = nn::cross_entropy(b, "loss", y, b.input("targets", {6}));
  Graph graph = b.finish_without_update(loss);
  const Op& forward = graph.ops[0];
  EXPECT_THAT(test::tensor_names(graph, forward.reads),
              ElementsAre("qkv", "query_gain", "key_gain", "begins"));
  EXPECT_THAT(test::tensor_names(graph, forward.writes), ElementsAre("y", "y.rstd"));
  EXPECT_EQ(graph.tensor(forward.writes[1]).shape, (std::vector<std::int64_t>{6, 3}));
  EXPECT_EQ(graph.tensor(forward.writes[1]).type, DataType::f32);
  EXPECT_EQ(forward.attributes.at("epsilon"), Attribute(1e-6));
  EXPECT_EQ(forward.attributes.at("factor"), Attribute(8.0));
  EXPECT_EQ(forward.attributes.at("low_frequency_factor"), Attribute(1.0));
  EXPECT_EQ(forward.attributes.at("high_frequency_factor"), Attribute(4.0));
  EXPECT_EQ(forward.attributes.at("original_positions"), Attribute(std::int64_t{8192}));
  const Op& backward = graph.ops[3];
  EXPECT_THAT(test::tensor_names(graph, backward.reads),
              ElementsAre("qkv", "query_gain", "key_gain", "y.rstd", "y.grad", "begins"));
  EXPECT_THAT(test::tensor_names(graph, backward.writes),
              ElementsAre("qkv.grad", "query_gain.grad", "key_gain.grad"));
  EXPECT_THAT(backward.may_alias, ElementsAre(Alias{0, 4}));
  EXPECT_EQ(backward.attributes, forward.attributes);
}

TEST(Rotary, ComputesNoGradientsOfFrozenGains) {
  GraphBuilder b(DataType::f64);
  nn::RotaryOptions options = small_rotary;
  options.query_gain = b.frozen_parameter("query_gain", {4}, {});
  options.key_gain = b.frozen_parameter("key_gain", {4}, {});
  Value y = nn::rotary(b, "y", b.parameter("qkv", {6, 16}, {}), options);
  Graph graph = b.finish_without_update(test::weighted_sum(b, y));
  EXPECT_THAT(test::tensor_names(graph, graph.ops.back().writes), ElementsAre("qkv.grad"));
}

TEST(Rotary, ReadsTheDocumentsOfItsMicroBatch) {
  GraphBuilder b;
  b.split_batch(2);
  Value tokens = b.input("tokens", {12});
  nn::RotaryOptions options = small_rotary;
  options.begins = b.input("begins", {12});
  Value loss;
  for (std::uint32_t part = 0; part < 2; ++part) {
    b.begin_unit("all", part);
    Value qkv = nn::embedding(b, "qkv", tokens, b.parameter("table", {7, 16}, {}), {}, 3);
    Value mean = nn::cross_entropy(b, "loss", nn::rotary(b, "y", qkv, options), tokens);
    loss = part == 0 ? mean : b.add_loss(loss, mean);
  }
  Graph graph = b.finish_without_update(loss);
  for (const char* name : {"micro.1.y", "micro.1.y.backward"})
    EXPECT_EQ(graph.op(test::op_named(graph, name)).attributes.at("first_token"), Attribute(std::int64_t{6}));
}

TEST(Rotary, RefusesWhatDoesNotFit) {
  GraphBuilder b;
  Value qkv = b.activation("qkv", {6, 16});
  Value gain = b.parameter("gain", {4}, {});
  Value begins = b.input("begins", {5});
  constexpr double infinite = std::numeric_limits<double>::infinity();
  const auto refused = [&](const std::string& words, auto change) {
    nn::RotaryOptions options = small_rotary;
    change(options);
    test::expect_refused([&] { nn::rotary(b, "turn", qkv, options); }, "turn: " + words);
  };
  using Options = nn::RotaryOptions;
  for (const std::int64_t heads :
       {std::int64_t{0}, std::int64_t{-2}, std::int64_t{3}, std::int64_t{1} << 62}) {
    refused("the width is not divisible by the heads", [=](Options& o) { o.heads = heads; });
    refused("the width is not divisible by the heads", [=](Options& o) { o.heads = 3, o.key_heads = heads; });
  }
  refused("heads of 1 elements cannot be turned", [](Options& o) { o.heads = 14; });
  refused("the tokens are no whole number of sequences", [](Options& o) { o.sequence = 4; });
  refused("the tokens are no whole number of sequences", [](Options& o) { o.sequence = 0; });
  for (const double theta : {0.0, -1.0, infinite, std::numeric_limits<double>::quiet_NaN()})
    refused("theta is", [=](Options& o) { o.theta = theta; });
  for (const double factor : {0.0, 0.5, -8.0, infinite})
    refused("the scaling's factor is", [=](Options& o) { o.scaling = {.factor = factor}; });
  for (const auto& [low, high] : {std::pair{0.0, 4.0}, {4.0, 4.0}, {4.0, 1.0}, {-2.0, -1.0}, {1.0, infinite}})
    refused("the scaling's frequency factors are", [=, low = low, high = high](Options& o) {
      o.scaling = {.low_frequency_factor = low, .high_frequency_factor = high};
    });
  refused("the scaling has 0 original positions", [](Options& o) { o.scaling = {.original_positions = 0}; });
  refused("one of the gains", [=](Options& o) { o.query_gain = gain; });
  refused("one of the gains", [=](Options& o) { o.key_gain = gain; });
  refused("the gain of keys 'qkv' is f32 [6, 16]",
          [=](Options& o) { o.query_gain = gain, o.key_gain = qkv; });
  for (const double epsilon : {0.0, -1e-6, infinite})
    refused("the norms' epsilon is",
            [=](Options& o) { o.query_gain = o.key_gain = gain, o.epsilon = epsilon; });
  refused("the documents' beginnings 'begins' is i32 [5]", [=](Options& o) { o.begins = begins; });
  Value wide = b.activation("wide", {2, 3 * 514});
  test::expect_refused([&] { nn::rotary(b, "turn", wide, {.sequence = 2}); }, "heads of 514 elements");
  test::expect_refused([&] { nn::rotary(b, "turn", gain, small_rotary); },
                       "turn: the queries, keys and values");
}

}  // namespace
}  // namespace stowage
