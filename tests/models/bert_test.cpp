#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "stowage/evaluate.h"
#include "stowage/models.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

constexpr ModelConfig tiny_bert{.layers = 2,
                                .width = 8,
                                .heads = 2,
                                .vocabulary = 11,
                                .sequence = 6,
                                .batch = 3,
                                .head_tokens = 4,
                                .epsilon = 1e-12};

Graph bert_graph(const ModelConfig& config, DataType type = DataType::f32) {
  GraphBuilder builder(type);
  const BuiltModel model = bert(builder, config);
  return builder.finish(model.loss, {});
}

std::int64_t parameters_of(const ModelConfig& config) {
  std::int64_t sum = 0;
  for (const Tensor& tensor : bert_graph(config).tensors) {
    if (tensor.kind == TensorKind::parameter) sum += tensor.elements();
  }
  return sum;
}

template <class Field>
ModelConfig changed_bert(Field ModelConfig::*field, Field value) {
  ModelConfig config = tiny_bert;
  config.*field = value;
  return config;
}

ModelConfig pretraining(std::int64_t layers) {
  ModelConfig config = tiny_bert;
  config.layers = layers;
  config.padded_vocabulary = 16;
  config.pretraining = true;
  return config;
}

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

Shapes parameter_shapes(const Graph& graph) {
  Shapes shapes;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter) shapes[tensor.name] = tensor.shape;
  }
  return shapes;
}

Shapes encoder_parameters() {
  return {{"bert.embeddings.word_embeddings.weight", {11, 8}},
          {"bert.embeddings.position_embeddings.weight", {6, 8}},
          {"bert.embeddings.LayerNorm.weight", {8}},
          {"bert.embeddings.LayerNorm.bias", {8}},
          {"bert.encoder.layer.0.attention.self.query_key_value.weight", {8, 24}},
          {"bert.encoder.layer.0.attention.self.query_key_value.bias", {24}},
          {"bert.encoder.layer.0.attention.output.dense.weight", {8, 8}},
          {"bert.encoder.layer.0.attention.output.dense.bias", {8}},
          {"bert.encoder.layer.0.attention.output.LayerNorm.weight", {8}},
          {"bert.encoder.layer.0.attention.output.LayerNorm.bias", {8}},
          {"bert.encoder.layer.0.intermediate.dense.weight", {8, 32}},
          {"bert.encoder.layer.0.intermediate.dense.bias", {32}},
          {"bert.encoder.layer.0.output.dense.weight", {32, 8}},
          {"bert.encoder.layer.0.output.dense.bias", {8}},
          {"bert.encoder.layer.0.output.LayerNorm.weight", {8}},
          {"bert.encoder.layer.0.output.LayerNorm.bias", {8}}};
}

TEST(Bert, HasTheParametersOfAnEncoder) {
  const Graph graph = bert_graph(changed_bert(&ModelConfig::layers, std::int64_t{1}));
  EXPECT_EQ(parameter_shapes(graph), encoder_parameters());
}

// In pre-training, those that the encoder has, and the rest of the paper's model.
TEST(Bert, HasTheParametersOfPretraining) {
  const Graph graph = bert_graph(pretraining(1));
  auto expected = encoder_parameters();
  expected["bert.embeddings.word_embeddings.weight"] = {16, 8};
  expected["bert.embeddings.token_type_embeddings.weight"] = {2, 8};
  expected["bert.pooler.dense.weight"] = {8, 8};
  expected["bert.pooler.dense.bias"] = {8};
  expected["cls.predictions.bias"] = {16};
  expected["cls.predictions.transform.dense.weight"] = {8, 8};
  expected["cls.predictions.transform.dense.bias"] = {8};
  expected["cls.predictions.transform.LayerNorm.weight"] = {8};
  expected["cls.predictions.transform.LayerNorm.bias"] = {8};
  expected["cls.seq_relationship.weight"] = {8, 2};
  expected["cls.seq_relationship.bias"] = {2};
  EXPECT_EQ(parameter_shapes(graph), expected);
}

TEST(Bert, CountsItsParameters) {
  ModelConfig base = bert_family.defaults;
  base.pretraining = false;
  ModelConfig large = base;
  large.layers = 24;
  large.width = 1024;
  large.heads = 16;
  large.batch = 1;
  // Embeddings and their norm, then 12 C^2 + 13 C of a layer.
  EXPECT_EQ(parameters_of(base), (30528 + 512 + 2) * 768 + 12 * (12 * 768 * 768 + 13 * 768));
  EXPECT_EQ(parameters_of(large), (30528 + 512 + 2) * 1024 + 24 * (12 * 1024 * 1024 + 13 * 1024));
}

TEST(Bert, HasOneUnitPerHalfBlock) {
  EXPECT_THAT(bert_graph(tiny_bert).unit_names, ElementsAre("embedding", "layer.0.attention", "layer.0.mlp",
                                                            "layer.1.attention", "layer.1.mlp", "head"));
}

std::vector<std::string> forward_ops(const Graph& graph, std::uint32_t unit) {
  std::vector<std::string> ops;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::forward && op.unit == unit) ops.push_back(op.name + ": " + op.kernel);
  }
  return ops;
}

// Each half-block ends with its sum, whose norm the next begins with.
TEST(Bert, NormsBehindTheResidual) {
  const Graph graph = bert_graph(tiny_bert);
  EXPECT_THAT(forward_ops(graph, 1),
              ElementsAre("layer.0.attention.qkv: linear", "layer.0.attention: attention",
                          "layer.0.attention.output: linear", "layer.0.attention.residual: add"));
  EXPECT_THAT(forward_ops(graph, 2),
              ElementsAre("layer.0.attention.norm: layer_norm", "layer.0.mlp.up: linear_gelu",
                          "layer.0.mlp.down: linear", "layer.0.mlp.residual: add"));
  EXPECT_THAT(forward_ops(graph, 3),
              ElementsAre("layer.0.mlp.norm: layer_norm", "layer.1.attention.qkv: linear",
                          "layer.1.attention: attention", "layer.1.attention.output: linear",
                          "layer.1.attention.residual: add"));
  const Graph dropping = bert_graph(changed_bert(&ModelConfig::dropout, 0.1));
  EXPECT_TRUE(
      dropping.op(test::op_named(dropping, "layer.1.mlp.residual")).attributes.contains("probability"));
}

TEST(Bert, PretrainsOnMaskedTokensAndNextSentences) {
  const Graph graph = bert_graph(pretraining(1));
  EXPECT_THAT(forward_ops(graph, 0), ElementsAre("embedding: embedding", "embedding.token_types: embedding",
                                                 "embedding.sum: add", "embedding.norm: layer_norm"));
  EXPECT_THAT(forward_ops(graph, 3),
              ElementsAre("layer.0.mlp.norm: layer_norm", "pooler.first: first_token", "pooler.dense: linear",
                          "pooler: tanh", "next_sentence.logits: linear", "next_sentence.loss: cross_entropy",
                          "transform: linear_gelu", "transform.norm: layer_norm"));
  const Op& masked = graph.op(test::op_named(graph, "loss"));
  EXPECT_EQ(masked.kernel, "linear_cross_entropy");
  EXPECT_EQ(masked.attributes.at("vocabulary"), Attribute(std::int64_t{11}));
  EXPECT_EQ(test::tensor_names(graph, masked.reads).back(), "cls.predictions.bias");
  const Op& attention = graph.op(test::op_named(graph, "layer.0.attention"));
  EXPECT_EQ(test::tensor_names(graph, attention.reads).back(), "seen");
  EXPECT_EQ(graph.op(test::op_named(graph, "loss.sum")).kernel, "add_loss");
  EXPECT_EQ(graph.tensor(graph.loss).name, "loss.sum");
}

TEST(Bert, DropsAttentionApart) {
  ModelConfig config = changed_bert(&ModelConfig::dropout, 0.1);
  config.attention_dropout = 0.3;
  const Graph graph = bert_graph(config);
  EXPECT_EQ(graph.op(test::op_named(graph, "layer.1.attention")).attributes.at("dropout"), Attribute(0.3));
  EXPECT_EQ(graph.op(test::op_named(graph, "layer.1.mlp.residual")).attributes.at("probability"),
            Attribute(0.1));
}

TEST(Bert, SeesBothWaysAndTakesTheExactGelu) {
  const Graph graph = bert_graph(tiny_bert);
  const auto attribute = [&](const char* op, const char* name) {
    return graph.op(test::op_named(graph, op)).attributes.at(name);
  };
  EXPECT_EQ(attribute("layer.0.attention", "causal"), Attribute(std::int64_t{0}));
  EXPECT_EQ(attribute("layer.0.mlp.up", "form"), Attribute(std::string("erf")));
  EXPECT_EQ(attribute("layer.0.mlp.norm", "epsilon"), Attribute(1e-12));
}

TEST(Bert, LearnsItsBatchFromMaskedTokensAlone) {
  GraphBuilder builder(DataType::f32);
  const BuiltModel model = bert(builder, tiny_bert);
  Evaluator evaluator(builder.finish(model.loss, {}), cpu_launch_table(), 1);
  test::fill_tokens(evaluator, model.tokens.id, 11, 1);
  test::fill_tokens(evaluator, model.targets.id, 11, 2);
  auto* targets = test::elements_of<std::int32_t>(evaluator.value(model.targets.id));
  for (int i = 0; i < 18; ++i) {
    if (i % 3 != 0) targets[i] = -1;
  }
  std::vector<double> losses;
  for (std::uint64_t step = 0; step < 60; ++step) {
    evaluator.run(step, 1e-2);
    losses.push_back(*test::elements_of<double>(evaluator.value(model.loss.id)));
  }
  // The embedding is normed to 1 and the head tied to it: a token's own logit starts near 0.02 * 8.
  EXPECT_NEAR(losses.front(), std::log(11), 0.16);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(Bert, RefusesWhatDoesNotFit) {
  const auto refused = [](const ModelConfig& config, const std::string& words) {
    test::expect_refused([&] { bert_graph(config); }, words);
  };
  refused(changed_bert(&ModelConfig::layers, std::int64_t{0}), "bert: layers is 0; give at least 1");
  refused(changed_bert(&ModelConfig::heads, std::int64_t{3}), "bert: width 8 is not divisible by heads 3");
  refused(changed_bert(&ModelConfig::dropout, 1.0), "bert: dropout 1 is outside [0, 1)");
  refused(changed_bert(&ModelConfig::head_tokens, std::optional<std::int64_t>(-1)),
          "bert: head_tokens is -1");
  refused(changed_bert(&ModelConfig::width, std::int64_t{1} << 40),
          "bert: width is 1099511627776; give at most");
  refused(changed_bert(&ModelConfig::padded_vocabulary, std::int64_t{10}),
          "bert: padded_vocabulary 10 is below vocabulary 11");
  refused(changed_bert(&ModelConfig::attention_dropout, std::optional(1.5)),
          "bert: attention_dropout 1.5 is outside [0, 1)");
  refused(changed_bert(&ModelConfig::epsilon, 0.0), "bert: epsilon 0 is not above 0");
}

}  // namespace
}  // namespace stowage
