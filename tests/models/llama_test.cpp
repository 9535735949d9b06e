#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/models/table_blocks.h"
#include "stowage/evaluate.h"
#include "stowage/models.h"
#include "tests/support/expect_refused.h"
#include "tests/support/finite_difference.h"
#include "tests/support/graph_queries.h"

namespace stowage {
namespace {

using testing::ElementsAre;

constexpr std::int32_t words = 11;

// Six heads of width 4 on two key heads: wider than the trunk.
ModelConfig tiny_llama() {
  return {.layers = 2,
          .width = 10,
          .heads = 6,
          .vocabulary = words,
          .sequence = 6,
          .batch = 2,
          .key_heads = 2,
          .head_width = 4,
          .inner = 14};
}

std::map<std::string, std::vector<std::int64_t>> llama_parameters(const ModelConfig& config) {
  GraphBuilder builder;
  const Graph graph = builder.finish(llama(builder, config).loss, AdamW{});
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const Tensor& tensor : graph.tensors)
    if (tensor.kind == TensorKind::parameter) shapes[tensor.name] = tensor.shape;
  return shapes;
}

TEST(Llama, HasTheParametersOfItsRelatives) {
  ModelConfig config = tiny_llama();
  config.layers = 1;
  std::map<std::string, std::vector<std::int64_t>> expected{
      {"embed_tokens.weight", {11, 10}},
      {"layers.0.input_layernorm.weight", {10}},
      {"layers.0.self_attn.qkv_proj.weight", {(6 + 2 + 2) * 4, 10}},
      {"layers.0.self_attn.o_proj.weight", {10, 6 * 4}},
      {"layers.0.post_attention_layernorm.weight", {10}},
      {"layers.0.mlp.gate_proj.weight", {14, 10}},
      {"layers.0.mlp.up_proj.weight", {14, 10}},
      {"layers.0.mlp.down_proj.weight", {10, 14}},
      {"norm.weight", {10}}};
  EXPECT_EQ(llama_parameters(config), expected);
  config.tied = false;
  config.attention_bias = config.head_norms = true;
  expected["lm_head.weight"] = {11, 10};
  expected["layers.0.self_attn.qkv_proj.bias"] = {40};
  expected["layers.0.self_attn.q_norm.weight"] = expected["layers.0.self_attn.k_norm.weight"] = {4};
  EXPECT_EQ(llama_parameters(config), expected);
}

// The numbers that the models' cards give.
TEST(Llama, CountsTheParametersOfPublishedModels) {
  const auto count = [](const ModelFamily& family) {
    GraphBuilder builder(DataType::bf16);
    const Graph graph = builder.finish(family.build(builder, family.defaults).loss, AdamW{});
    std::int64_t sum = 0;
    for (const Tensor& tensor : graph.tensors)
      if (tensor.kind == TensorKind::parameter) sum += tensor.elements();
    return sum;
  };
  EXPECT_EQ(count(llama_family), 1'235'814'400);    // Llama 3.2 1B
  EXPECT_EQ(count(mistral_family), 7'248'023'552);  // Mistral 7B v0.3
  EXPECT_EQ(count(qwen2_family), 494'032'768);      // Qwen2.5 0.5B
  EXPECT_EQ(count(qwen3_family), 596'049'920);      // Qwen3 0.6B
}

TEST(Llama, HasOneUnitPerHalfBlock) {
  GraphBuilder builder;
  const Graph graph = builder.finish(llama(builder, tiny_llama()).loss, AdamW{});
  EXPECT_THAT(graph.unit_names, ElementsAre("embedding", "layers.0.attention", "layers.0.mlp",
                                            "layers.1.attention", "layers.1.mlp", "head"));
}

// Each unit of a block has its micro-batches, and its weights are needed there alone.
TEST(Llama, HasOneUnitPerBlockOfItsTables) {
  ModelConfig config = tiny_llama();
  config.layers = 1;
  config.table_rows = 4;
  config.micro_batches = 2;
  GraphBuilder builder;
  const Graph graph = builder.finish(llama(builder, config).loss, AdamW{});
  std::vector<std::string> firsts;
  for (std::size_t i = 0; i < graph.unit_names.size(); i += 2) firsts.push_back(graph.unit_names[i]);
  EXPECT_THAT(firsts, ElementsAre("micro.0.embedding.0", "micro.0.embedding.1", "micro.0.embedding.2",
                                  "micro.0.layers.0.attention", "micro.0.layers.0.mlp", "micro.0.head.0",
                                  "micro.0.head.1", "micro.0.head.2"));
  for (const Op& op : graph.ops) {
    if (op.phase == Phase::update) continue;
    const auto tables = std::count_if(op.reads.begin(), op.reads.end(), [&](TensorId id) {
      return graph.tensor(id).name.starts_with("embed_tokens.weight.rows.") &&
             graph.tensor(id).kind == TensorKind::parameter;
    });
    EXPECT_LE(tables, 1) << op.name;
  }
  const auto shapes = llama_parameters(config);
  EXPECT_EQ(shapes.at("embed_tokens.weight.rows.4"), (std::vector<std::int64_t>{4, 10}));
  EXPECT_EQ(shapes.at("embed_tokens.weight.rows.8"), (std::vector<std::int64_t>{3, 10}));
  EXPECT_FALSE(shapes.contains("embed_tokens.weight"));
  // Logits as one tensor need the whole head.
  config.head_tokens = 0;
  EXPECT_TRUE(llama_parameters(config).contains("embed_tokens.weight"));
}

TEST(Llama, GivesEachLayerItsWindow) {
  ModelConfig config = tiny_llama();
  config.windows = {0, 3};
  GraphBuilder builder;
  const Graph graph = builder.finish(llama(builder, config).loss, AdamW{});
  const auto window = [&](const char* op) {
    const Attributes& attributes = graph.op(test::op_named(graph, op)).attributes;
    const auto found = attributes.find("window");
    return found == attributes.end() ? 0 : std::get<std::int64_t>(found->second);
  };
  EXPECT_EQ(window("layers.0.self_attn"), 0);
  EXPECT_EQ(window("layers.1.self_attn"), 3);
}

// A model with draws of deviation 0.3 instead of 0.02, so that every part matters.
struct DrawnLlama {
  explicit DrawnLlama(const ModelConfig& config)
      : builder(DataType::f64),
        model(llama(builder, config)),
        graph(builder.finish_without_update(model.loss)),
        evaluator(graph, cpu_launch_table(), 5) {
    test::fill_tokens(evaluator, model.tokens.id, words, 1);
    test::fill_tokens(evaluator, model.targets.id, words, 2);
    for (TensorId id = 0; id < graph.tensors.size(); ++id) {
      if (graph.tensor(id).kind != TensorKind::parameter) continue;
      Tensor wide = graph.tensor(id);
      wide.initializer.standard_deviation = 0.3;
      initialize(wide, 5, evaluator.value(id));
    }
  }

  std::int32_t* integers(Value value) { return test::elements_of<std::int32_t>(evaluator.value(value.id)); }

  GraphBuilder builder;
  BuiltModel model;
  Graph graph;
  Evaluator evaluator;
};

void expect_gradients_match(const ModelConfig& config, const std::vector<std::int32_t>& begins = {}) {
  DrawnLlama drawn(config);
  drawn.integers(drawn.model.targets)[3] = -1;
  if (!begins.empty()) std::copy(begins.begin(), begins.end(), drawn.integers(drawn.model.begins));
  std::vector<std::pair<TensorId, TensorId>> gradients;
  for (TensorId id = 0; id < drawn.graph.tensors.size(); ++id)
    if (drawn.graph.tensor(id).kind == TensorKind::parameter)
      gradients.emplace_back(id, drawn.builder.gradient_of({id}));
  test::expect_gradients_match(drawn.evaluator, gradients, {.step = 3e-4, .tolerance = 1e-6, .most = 48});
}

TEST(LlamaGradient, OfGroupedQueriesMatchesDifferences) { expect_gradients_match(tiny_llama()); }

TEST(LlamaGradient, WithNormsBiasesAndAnOwnHeadMatchesDifferences) {
  ModelConfig config = tiny_llama();
  config.tied = false;
  config.attention_bias = config.head_norms = true;
  config.rotary_scaling = nn::RotaryScaling{.factor = 4, .original_positions = 16};
  expect_gradients_match(config);
}

TEST(LlamaGradient, OfPackedDocumentsInAWindowMatchesDifferences) {
  ModelConfig config = tiny_llama();
  config.head_norms = config.packed = true;
  config.windows = {2, 0};
  expect_gradients_match(config, {0, 0, 2, 2, 2, 5, 0, 0, 0, 0, 4, 4});
}

TEST(LlamaGradient, OfTablesInBlocksMatchesDifferences) {
  ModelConfig config = tiny_llama();
  config.table_rows = 4;
  expect_gradients_match(config);
  config.tied = false;
  config.micro_batches = 2;
  expect_gradients_match(config);
}

// The loss, and gradients by name of the parameter, or of the table that it is a block of.
struct Results {
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

// With the parameters of `whole`, whose tables are not in blocks.
Results results_of(const ModelConfig& config, DrawnLlama& whole) {
  DrawnLlama drawn(config);
  std::map<std::string, std::size_t> taken;
  const auto begin_of = [&](const Tensor& tensor) {
    std::size_t& at = taken[std::string(name_of_table(tensor.name))];
    return std::exchange(at, at + static_cast<std::size_t>(tensor.elements()));
  };
  std::map<std::string, const double*> values;
  for (TensorId id = 0; id < whole.graph.tensors.size(); ++id)
    if (whole.graph.tensor(id).kind == TensorKind::parameter)
      values[whole.graph.tensor(id).name] = test::elements_of<double>(whole.evaluator.value(id));
  for (TensorId id = 0; id < drawn.graph.tensors.size(); ++id) {
    const Tensor& tensor = drawn.graph.tensor(id);
    if (tensor.kind != TensorKind::parameter) continue;
    std::copy_n(values.at(std::string(name_of_table(tensor.name))) + begin_of(tensor), tensor.elements(),
                test::elements_of<double>(drawn.evaluator.value(id)));
  }
  drawn.integers(drawn.model.targets)[3] = -1;
  drawn.evaluator.run(0, 0);
  Results results{*test::elements_of<double>(drawn.evaluator.value(drawn.model.loss.id)), {}};
  for (TensorId id = 0; id < drawn.graph.tensors.size(); ++id) {
    const Tensor& tensor = drawn.graph.tensor(id);
    if (tensor.kind != TensorKind::parameter) continue;
    const double* gradient =
        test::elements_of<double>(drawn.evaluator.value(drawn.builder.gradient_of({id})));
    std::vector<double>& all = results.gradients[std::string(name_of_table(tensor.name))];
    all.insert(all.end(), gradient, gradient + tensor.elements());
  }
  return results;
}

TEST(Llama, TablesInBlocksComputeWhatWholeTablesDo) {
  for (const bool tied : {true, false}) {
    ModelConfig config = tiny_llama();
    config.tied = tied;
    config.padded_vocabulary = 14;
    DrawnLlama drawn(config);
    const Results whole = results_of(config, drawn);
    for (const std::int64_t rows : {1, 4, 6, 11}) {
      for (const std::int64_t micro_batches : {1, 2}) {
        SCOPED_TRACE(testing::Message() << rows << " rows, " << micro_batches << " micro-batches");
        config.table_rows = rows;
        config.micro_batches = micro_batches;
        const Results blocks = results_of(config, drawn);
        EXPECT_NEAR(blocks.loss, whole.loss, 1e-14 * whole.loss);
        ASSERT_EQ(blocks.gradients.size(), whole.gradients.size());
        for (const auto& [name, expected] : whole.gradients)
          EXPECT_THAT(blocks.gradients.at(name), testing::Pointwise(testing::DoubleNear(1e-14), expected))
              << name;
      }
    }
  }
}

// Three documents in one sample give the losses and gradients that each gives alone.
TEST(Llama, PackedDocumentsAreAsEachAlone) {
  const std::vector<std::int64_t> lengths = {1, 3, 2};
  ModelConfig together = tiny_llama();
  together.batch = 1;
  together.packed = true;
  DrawnLlama all(together);
  std::vector<std::int32_t> begins;
  for (const std::int64_t length : lengths) {
    const auto first = static_cast<std::int32_t>(begins.size());
    begins.insert(begins.end(), static_cast<std::size_t>(length), first);
  }
  std::copy(begins.begin(), begins.end(), all.integers(all.model.begins));
  all.evaluator.run(0, 0);

  double loss = 0;
  std::map<std::string, std::vector<double>> sums;
  std::size_t first = 0;
  for (const std::int64_t length : lengths) {
    ModelConfig config = tiny_llama();
    config.batch = 1;
    config.sequence = length;
    DrawnLlama alone(config);
    const auto count = static_cast<std::size_t>(length);
    std::copy_n(all.integers(all.model.tokens) + first, count, alone.integers(alone.model.tokens));
    std::copy_n(all.integers(all.model.targets) + first, count, alone.integers(alone.model.targets));
    alone.evaluator.run(0, 0);
    const double share = static_cast<double>(length) / 6;
    loss += share * *test::elements_of<double>(alone.evaluator.value(alone.model.loss.id));
    for (TensorId id = 0; id < alone.graph.tensors.size(); ++id) {
      const Tensor& tensor = alone.graph.tensor(id);
      if (tensor.kind != TensorKind::parameter) continue;
      const double* values =
          test::elements_of<double>(alone.evaluator.value(alone.builder.gradient_of({id})));
      std::vector<double>& sum = sums[tensor.name];
      sum.resize(static_cast<std::size_t>(tensor.elements()));
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += share * values[i];
    }
    first += count;
  }

  EXPECT_NEAR(*test::elements_of<double>(all.evaluator.value(all.model.loss.id)), loss, 1e-13);
  for (TensorId id = 0; id < all.graph.tensors.size(); ++id) {
    if (all.graph.tensor(id).kind != TensorKind::parameter) continue;
    const std::vector<double>& expected = sums.at(all.graph.tensor(id).name);
    const double* found = test::elements_of<double>(all.evaluator.value(all.builder.gradient_of({id})));
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], 1e-12) << all.graph.tensor(id).name << ' ' << i;
  }
}

TEST(Llama, RefusesSizesThatDoNotFit) {
  const auto refused = [](auto change, const std::string& message) {
    ModelConfig config = tiny_llama();
    change(config);
    test::expect_refused(
        [&] {
          GraphBuilder builder;
          llama(builder, config);
        },
        message);
  };
  refused([](ModelConfig& c) { c.key_heads = 4; }, "llama: heads 6 is not divisible by key_heads 4");
  refused([](ModelConfig& c) { c.key_heads = -1; }, "llama: key_heads is -1; give 0 to");
  refused([](ModelConfig& c) { c.head_width = 0; }, "llama: width 10 is not divisible by heads 6");
  refused([](ModelConfig& c) { c.head_width = std::int64_t{1} << 40; }, "llama: head_width is");
  refused([](ModelConfig& c) { c.head_width = 3; }, "head");
  refused([](ModelConfig& c) { c.inner = -1; }, "llama: inner is -1");
  refused([](ModelConfig& c) { c.windows = {1}; }, "llama: windows has 1 numbers and layers is 2");
  refused([](ModelConfig& c) { c.rotary_theta = 0; }, "theta");
  refused([](ModelConfig& c) { c.table_rows = -1; }, "llama: table_rows is -1 of 11; give at least 1");
  refused([](ModelConfig& c) { c.vocabulary = 4096, c.table_rows = 3; },
          "table_rows is 3 of 4096; give at least 4");
}

}  // namespace
}  // namespace stowage
