#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stowage/evaluate.h"
#include "stowage/models.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

constexpr ModelConfig tiny{
    .layers = 2, .width = 8, .heads = 2, .vocabulary = 11, .sequence = 6, .batch = 3, .dropout = 0};

Graph graph_of(const ModelConfig& config, DataType type = DataType::f32) {
  GraphBuilder builder(type);
  BuiltModel model = gpt(builder, config);
  return builder.finish(model.loss, {});
}

ModelConfig with_dropout(ModelConfig config, double dropout) {
  config.dropout = dropout;
  return config;
}

std::size_t count_ops(const Graph& graph, Phase phase) {
  return static_cast<std::size_t>(
      std::count_if(graph.ops.begin(), graph.ops.end(), [&](const Op& op) { return op.phase == phase; }));
}

TEST(Gpt, HasTheParametersOfGpt2) {
  Graph graph = graph_of({.layers = 1, .width = 8, .heads = 2, .vocabulary = 11, .sequence = 6, .batch = 3});
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.kind == TensorKind::parameter) shapes[tensor.name] = tensor.shape;
  }
  std::map<std::string, std::vector<std::int64_t>> expected{{"wte.weight", {11, 8}},
                                                            {"wpe.weight", {6, 8}},
                                                            {"h.0.ln_1.weight", {8}},
                                                            {"h.0.ln_1.bias", {8}},
                                                            {"h.0.attn.c_attn.weight", {8, 24}},
                                                            {"h.0.attn.c_attn.bias", {24}},
                                                            {"h.0.attn.c_proj.weight", {8, 8}},
                                                            {"h.0.attn.c_proj.bias", {8}},
                                                            {"h.0.ln_2.weight", {8}},
                                                            {"h.0.ln_2.bias", {8}},
                                                            {"h.0.mlp.c_fc.weight", {8, 32}},
                                                            {"h.0.mlp.c_fc.bias", {32}},
                                                            {"h.0.mlp.c_proj.weight", {32, 8}},
                                                            {"h.0.mlp.c_proj.bias", {8}},
                                                            {"ln_f.weight", {8}},
                                                            {"ln_f.bias", {8}}};
  EXPECT_EQ(shapes, expected);
}

TEST(Gpt, CountsItsParameters) {
  auto count = [](const ModelConfig& config) {
    std::int64_t sum = 0;
    for (const Tensor& tensor : graph_of(config).tensors) {
      if (tensor.kind == TensorKind::parameter) sum += tensor.elements();
    }
    return sum;
  };
  EXPECT_EQ(count({}), 10'844'160);
  EXPECT_EQ(
      count({.layers = 12, .width = 768, .heads = 12, .vocabulary = 50257, .sequence = 1024, .batch = 1}),
      124'439'808);  // GPT-2 small
}

TEST(Gpt, StartsAsGpt2Does) {
  for (const Tensor& tensor : graph_of(tiny).tensors) {
    if (tensor.kind != TensorKind::parameter) continue;
    Initializer expected{0, 0.02};
    if (tensor.name.ends_with(".bias")) expected = {0, 0};
    if (tensor.name.find("ln_") != std::string::npos && tensor.name.ends_with(".weight")) expected = {1, 0};
    if (tensor.name.ends_with("c_proj.weight")) expected = {0, 0.02 / std::sqrt(2.0 * 2)};
    EXPECT_EQ(tensor.initializer.mean, expected.mean) << tensor.name;
    EXPECT_DOUBLE_EQ(tensor.initializer.standard_deviation, expected.standard_deviation) << tensor.name;
  }
}

TEST(Gpt, HasOneUnitPerHalfBlock) {
  Graph graph = graph_of(tiny);
  EXPECT_THAT(graph.unit_names,
              ElementsAre("embedding", "h.0.attention", "h.0.mlp", "h.1.attention", "h.1.mlp", "head"));
  std::vector<std::uint32_t> forward;
  std::vector<std::uint32_t> backward;
  for (const Op& op : graph.ops) {
    auto& units = op.phase == Phase::forward ? forward : backward;
    if (op.phase != Phase::update && (units.empty() || units.back() != op.unit)) units.push_back(op.unit);
  }
  EXPECT_THAT(forward, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(backward, ElementsAre(5, 4, 3, 2, 1, 0));
}

TEST(Gpt, ForwardOpsOfAnMlp) {
  Graph graph = graph_of(with_dropout(tiny, 0.1));
  std::vector<std::string> kernels;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::forward && op.unit == 4) kernels.push_back(op.name + ": " + op.kernel);
  }
  EXPECT_THAT(kernels, ElementsAre("h.1.ln_2: layer_norm", "h.1.mlp.c_fc: linear_gelu",
                                   "h.1.mlp.c_proj: linear", "h.1.mlp.residual: add"));
}

TEST(Gpt, BackwardOpsOfAnAttention) {
  Graph graph = graph_of(tiny);
  std::vector<std::string> names;
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::backward && op.unit == 3) names.push_back(op.name);
  }
  EXPECT_THAT(names,
              ElementsAre("h.1.attn.c_proj.backward_weight", "h.1.attn.c_proj.weight.grad.square_sum",  //
                          "h.1.attn.c_proj.backward_bias", "h.1.attn.c_proj.backward", "h.1.attn.backward",
                          "h.1.attn.c_attn.backward_weight", "h.1.attn.c_attn.weight.grad.square_sum",
                          "h.1.attn.c_attn.backward_bias", "h.1.attn.c_attn.backward",  //
                          "h.1.ln_1.backward", "h.1.ln_1.weight.grad.square_sums"));
  const Op& small = graph.op(test::op_named(graph, "h.1.ln_1.weight.grad.square_sums"));
  EXPECT_THAT(test::tensor_names(graph, small.reads),
              ElementsAre("h.1.ln_1.weight.grad", "h.1.ln_1.bias.grad", "h.1.attn.c_attn.bias.grad",
                          "h.1.attn.c_proj.bias.grad"));
  EXPECT_THAT(test::tensor_names(graph, small.writes),
              ElementsAre("h.1.ln_1.weight.grad.square_sum", "h.1.ln_1.bias.grad.square_sum",
                          "h.1.attn.c_attn.bias.grad.square_sum", "h.1.attn.c_proj.bias.grad.square_sum"));
}

TEST(Gpt, CountsItsOps) {
  for (std::int64_t layers : {1, 2, 5}) {
    auto n = static_cast<std::size_t>(layers);
    ModelConfig config = tiny;
    config.layers = layers;
    Graph plain = graph_of(config);
    EXPECT_EQ(count_ops(plain, Phase::forward), 9 * n + 2);
    EXPECT_EQ(count_ops(plain, Phase::backward), 15 * n + 5 + (6 * n + 3));
    EXPECT_EQ(count_ops(plain, Phase::update), 1 + (12 * n + 4));
    Graph dropping = graph_of(with_dropout(config, 0.1));
    EXPECT_EQ(count_ops(dropping, Phase::forward), 9 * n + 3);
    EXPECT_EQ(count_ops(dropping, Phase::backward), 17 * n + 6 + (6 * n + 3));
    EXPECT_EQ(count_ops(dropping, Phase::update), 1 + (12 * n + 4));
  }
}

TEST(Gpt, TheTiedTablesGradientIsCompleteAtTheEmbedding) {
  Graph graph = graph_of(tiny);
  const Op& sum = graph.op(test::op_named(graph, "wte.weight.grad.2.accumulate"));
  EXPECT_EQ(graph.unit_names[sum.unit], "embedding");
  EXPECT_THAT(test::tensor_names(graph, sum.reads), ElementsAre("wte.weight.grad", "wte.weight.grad.1"));
  OpId square = test::op_named(graph, "wte.weight.grad.square_sum");
  EXPECT_EQ(&graph.op(square - 1), &sum);
  EXPECT_EQ(graph.tensor(graph.op(square).reads[0]).name, "wte.weight.grad.2");
}

TEST(Gpt, UpdatesInOrderOfFirstUse) {
  Graph graph = graph_of({.layers = 1, .width = 8, .heads = 2, .vocabulary = 11, .sequence = 6, .batch = 3});
  std::vector<std::string> expected{"wte.weight",
                                    "wpe.weight",
                                    "h.0.ln_1.weight",
                                    "h.0.ln_1.bias",
                                    "h.0.attn.c_attn.weight",
                                    "h.0.attn.c_attn.bias",
                                    "h.0.attn.c_proj.weight",
                                    "h.0.attn.c_proj.bias",
                                    "h.0.ln_2.weight",
                                    "h.0.ln_2.bias",
                                    "h.0.mlp.c_fc.weight",
                                    "h.0.mlp.c_fc.bias",
                                    "h.0.mlp.c_proj.weight",
                                    "h.0.mlp.c_proj.bias",
                                    "ln_f.weight",
                                    "ln_f.bias"};
  std::vector<std::string> updated;
  for (const Op& op : graph.ops) {
    if (op.kernel != "adamw") continue;
    updated.push_back(graph.tensor(op.writes[0]).name);
    bool decays = graph.tensor(op.writes[0]).shape.size() >= 2;
    EXPECT_EQ(std::get<double>(op.attributes.at("weight_decay")), decays ? 0.1 : 0.0) << op.name;
  }
  EXPECT_THAT(updated, ElementsAreArray(expected));
  for (std::string& name : expected) name += ".grad.square_sum";
  EXPECT_THAT(test::tensor_names(graph, graph.op(test::op_named(graph, "clip")).reads),
              ElementsAreArray(expected));
}

TEST(Gpt, NoTwoOpsShareTheirRandomNumbers) {
  Graph graph = graph_of(with_dropout(tiny, 0.1));
  std::set<std::int64_t> keys;
  std::size_t drawing = 0;
  for (const Op& op : graph.ops) {
    if (op.phase != Phase::forward || !op.attributes.contains("key")) continue;
    ++drawing;
    keys.insert(std::get<std::int64_t>(op.attributes.at("key")));
  }
  EXPECT_EQ(drawing, 1 + 3 * 2U);
  EXPECT_EQ(keys.size(), drawing);
}

TEST(Gpt, CountsTheMatrixWork) {
  Graph graph = graph_of({});
  double linear = 0;
  for (const Op& op : graph.ops) {
    if (op.kernel.starts_with("linear") && op.kernel != "linear_backward_bias") linear += op.cost.flops;
  }
  double weights = 6 * 12.0 * 384 * 384 + 256.0 * 384;
  double biases = 6 * 9.0 * 384;  // added once in forward
  double gelu = 6 * 12.0 * 4 * 384;
  double softmax = 8 * 256.0;
  EXPECT_DOUBLE_EQ(linear, 2048 * (6 * weights + biases + gelu + softmax));
}

TEST(Gpt, ReadsBackFromJson) {
  for (double dropout : {0.0, 0.1}) {
    Graph graph = graph_of(with_dropout(tiny, dropout));
    EXPECT_EQ(graph_from_json(to_json(graph)), graph);
  }
}

std::vector<double> losses_of_steps(DataType type, int steps) {
  GraphBuilder builder(type);
  BuiltModel model = gpt(builder, tiny);
  Evaluator evaluator(builder.finish(model.loss, {}), cpu_launch_table(), 1);
  test::fill_tokens(evaluator, model.tokens.id, 11, 1);
  test::fill_tokens(evaluator, model.targets.id, 11, 2);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    evaluator.run(static_cast<std::uint64_t>(step), 1e-2);
    losses.push_back(*test::elements_of<double>(evaluator.value(model.loss.id)));
  }
  return losses;
}

TEST(Gpt, StartsFromUniformGuessesAndLearnsItsBatch) {
  std::vector<double> losses = losses_of_steps(DataType::f32, 60);
  EXPECT_NEAR(losses.front(), std::log(11), 0.05);
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(Gpt, SinglePrecisionFollowsDoublePrecision) {
  std::vector<double> singles = losses_of_steps(DataType::f32, 5);
  std::vector<double> doubles = losses_of_steps(DataType::f64, 5);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(singles[i], doubles[i], 1e-4 * doubles[i]) << i;
}

void expect_refused(ModelConfig config, const std::string& words) {
  test::expect_refused(
      [&] {
        GraphBuilder builder;
        gpt(builder, config);
      },
      words);
}

template <class Field>
ModelConfig changed(Field ModelConfig::*field, Field value) {
  ModelConfig config = tiny;
  config.*field = value;
  return config;
}

TEST(Gpt, RefusesWhatDoesNotFit) {
  expect_refused(changed(&ModelConfig::layers, std::int64_t{0}), "gpt: layers is 0; give at least 1");
  expect_refused(changed(&ModelConfig::width, std::int64_t{-8}), "gpt: width is -8");
  expect_refused(changed(&ModelConfig::heads, std::int64_t{0}), "gpt: heads is 0");
  expect_refused(changed(&ModelConfig::vocabulary, std::int64_t{0}), "gpt: vocabulary is 0");
  expect_refused(changed(&ModelConfig::sequence, std::int64_t{0}), "gpt: sequence is 0");
  expect_refused(changed(&ModelConfig::batch, std::int64_t{-1}), "gpt: batch is -1");
  expect_refused(changed(&ModelConfig::heads, std::int64_t{3}), "gpt: width 8 is not divisible by heads 3");
  expect_refused(changed(&ModelConfig::dropout, 1.0), "gpt: dropout 1 is outside [0, 1)");
  expect_refused(changed(&ModelConfig::dropout, -0.5), "gpt: dropout -0.5 is outside [0, 1)");
  expect_refused(changed(&ModelConfig::dropout, std::nan("")), "gpt: dropout nan is outside [0, 1)");
  expect_refused(changed(&ModelConfig::layers, std::int64_t{1} << 40),
                 "gpt: layers is 1099511627776; give at most");
  expect_refused(changed(&ModelConfig::layers, std::int64_t{1025}), "gpt: layers is 1025; give at most 1024");
  expect_refused(changed(&ModelConfig::vocabulary, std::int64_t{1} << 31),
                 "gpt: vocabulary is 2147483648; give at most 16777216");
  expect_refused(changed(&ModelConfig::width, std::int64_t{1} << 40), "give at most 1048576");
  expect_refused(changed(&ModelConfig::batch, std::int64_t{1} << 60), "gpt: batch is 1152921504606846976");
  expect_refused(changed(&ModelConfig::padded_vocabulary, std::int64_t{10}),
                 "gpt: padded_vocabulary 10 is below vocabulary 11");
  expect_refused(changed(&ModelConfig::padded_vocabulary, std::int64_t{1} << 60), "larger than any machine");
  expect_refused(changed(&ModelConfig::residual_dropout, std::optional(-1.0)),
                 "gpt: residual_dropout -1 is outside [0, 1)");
  expect_refused(changed(&ModelConfig::epsilon, std::nan("")), "gpt: epsilon nan is not above 0");
  ModelConfig large = changed(&ModelConfig::batch, std::int64_t{1} << 24);
  large.sequence = 1 << 24;
  expect_refused(large,
                 "16777216 samples of 16777216 tokens: larger than any machine; make batch, sequence or");
}

TEST(Gpt, PadsItsVocabulary) {
  for (std::int64_t head_tokens : {0, 4}) {
    ModelConfig config = changed(&ModelConfig::padded_vocabulary, std::int64_t{16});
    config.head_tokens = head_tokens;
    const Graph graph = graph_of(config);
    EXPECT_EQ(graph.tensor(test::tensor_named(graph, "wte.weight")).shape,
              (std::vector<std::int64_t>{16, 8}));
    const Op& loss = graph.op(test::op_named(graph, "loss"));
    EXPECT_EQ(loss.attributes.at("vocabulary"), Attribute(std::int64_t{11}));
  }
  EXPECT_EQ(graph_of(changed(&ModelConfig::padded_vocabulary, std::int64_t{11})), graph_of(tiny));
}

TEST(Gpt, DropsEachPlaceApart) {
  ModelConfig config = with_dropout(tiny, 0.1);
  config.embedding_dropout = 0.2;
  config.attention_dropout = 0.0;
  config.residual_dropout = 0.3;
  const Graph graph = graph_of(config);
  const auto attribute = [&](const char* op, const char* name) {
    return graph.op(test::op_named(graph, op)).attributes.at(name);
  };
  EXPECT_EQ(attribute("embedding.dropout", "probability"), Attribute(0.2));
  EXPECT_EQ(attribute("h.1.attn", "dropout"), Attribute(0.0));
  EXPECT_EQ(attribute("h.1.attn.residual", "probability"), Attribute(0.3));
  EXPECT_EQ(attribute("h.1.mlp.residual", "probability"), Attribute(0.3));
}

}  // namespace
}  // namespace stowage
