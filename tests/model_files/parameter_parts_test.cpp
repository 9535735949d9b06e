#include "src/model_files/parameter_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/model_files/model_graphs.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using test::fixture;
using ::testing::ElementsAre;

// How often each element of the parameter and of its parts is in a run, asked for in pieces.
void expect_each_once(const ParameterParts& parameter, std::int64_t piece) {
  const std::int64_t all = parameter.rows * parameter.columns;
  std::vector<int> elements(static_cast<std::size_t>(all));
  std::vector<std::vector<int>> stored;
  for (const StoredPart& part : parameter.parts)
    stored.emplace_back(static_cast<std::size_t>(part.columns * part.rows));
  for (std::int64_t begin = 0; begin < all; begin += piece) {
    const std::int64_t end = std::min(all, begin + piece);
    for_each_run(parameter, begin, end, [&](const Run& run) {
      ASSERT_GT(run.count, 0);
      for (std::int64_t i = 0; i < run.count; ++i) {
        ASSERT_GE(run.element + i * run.stride, begin);
        ASSERT_LT(run.element + i * run.stride, end);
        ++elements.at(static_cast<std::size_t>(run.element + i * run.stride));
        ++stored.at(run.part).at(static_cast<std::size_t>(run.stored + i));
      }
    });
  }
  for (std::int64_t i = 0; i < all; ++i)
    EXPECT_EQ(elements[static_cast<std::size_t>(i)], i < parameter.stored_rows * parameter.columns ? 1 : 0);
  for (const auto& part : stored) EXPECT_THAT(part, ::testing::Each(1));
}

TEST(ParameterParts, RunsHoldEachElementOnce) {
  const ModelDescription bert = read_model_description(fixture("bert"));
  const Graph graph = test::bert_parameters(bert, 64);
  for (const ParameterParts& parameter : parameter_parts(bert, graph)) {
    SCOPED_TRACE(graph.tensor(parameter.parameter).name);
    for (const std::int64_t piece : {1, 5, 16, 1 << 20}) expect_each_once(parameter, piece);
  }
  // Fused and not transposed: no model has it, the runs allow it.
  ParameterParts straight{
      0, no_id, 4, 6, 3, {{"a", {3, 2}, 0, 2, false, 0, 3}, {"b", {3, 4}, 2, 4, false, 0, 3}}, false};
  for (const std::int64_t piece : {1, 5, 7, 100}) expect_each_once(straight, piece);
}

// Rows of different counts, straight and transposed, with padding behind them.
TEST(ParameterParts, PartsMayBeRows) {
  const ParameterParts rows{
      0,
      no_id,
      9,
      5,
      8,
      {{"q", {4, 5}, 0, 5, false, 0, 4}, {"k", {1, 5}, 0, 5, false, 4, 1}, {"v", {5, 3}, 0, 5, true, 5, 3}},
      false};
  for (const std::int64_t piece : {1, 3, 7, 20, 100}) expect_each_once(rows, piece);
  std::vector<stowage::Run> runs;
  for_each_run(rows, 18, 27, [&](const stowage::Run& run) { runs.push_back(run); });
  ASSERT_GE(runs.size(), 3U);
  EXPECT_THAT(std::vector({runs[0].stored, runs[0].element, runs[0].count}), ElementsAre(18, 18, 2));
  EXPECT_THAT(std::vector({runs[1].stored, runs[1].element, runs[1].count}), ElementsAre(0, 20, 5));
  EXPECT_EQ(runs[2].part, 2U);
}

TEST(ParameterParts, RowsAreThoseOfQueriesKeysAndValues) {
  ModelDescription model{.family = &qwen2_family, .config = qwen2_family.defaults};
  Graph graph;
  graph.tensors.push_back({"layers.3.self_attn.qkv_proj.weight", DataType::f32, {1152, 896}, {}, {}});
  graph.tensors.push_back({"layers.3.self_attn.qkv_proj.bias", DataType::f32, {1152}, {}, {}});
  for (Tensor& tensor : graph.tensors) tensor.kind = TensorKind::parameter;
  for (const ParameterParts& parameter : parameter_parts(model, graph)) {
    const bool bias = parameter.columns == 1;
    ASSERT_EQ(parameter.parts.size(), 3U);
    const StoredPart& key = parameter.parts[1];
    EXPECT_EQ(key.name, std::string("model.layers.3.self_attn.k_proj.") + (bias ? "bias" : "weight"));
    EXPECT_EQ(key.shape, bias ? std::vector<std::int64_t>{128} : (std::vector<std::int64_t>{128, 896}));
    EXPECT_EQ(key.first_row, 896);
    for (const std::int64_t piece : {1000, 1 << 20}) expect_each_once(parameter, piece);
  }
  model.config.key_heads = 1;
  test::expect_refused([&] { parameter_parts(model, graph); }, "has 1152 rows, and the model's files 1024");
}

TEST(ParameterParts, NameWhatTransformersNames) {
  const ModelDescription bert = read_model_description(fixture("bert"));
  const TensorFiles files(fixture("bert"));
  std::size_t parts = 0;
  for (const ParameterParts& parameter : parameter_parts(bert, test::bert_parameters(bert, 40))) {
    for (const StoredPart& part : parameter.parts) {
      ASSERT_NE(files.find(part.name), nullptr) << part.name;
      EXPECT_EQ(files.find(part.name)->shape, part.shape) << part.name;
      ++parts;
    }
  }
  EXPECT_EQ(parts, files.size());
}

TEST(ParameterParts, KnowOtherNames) {
  EXPECT_THAT(accepted_names({.family = &gpt_family}, "transformer.wte.weight"),
              ElementsAre("transformer.wte.weight", "wte.weight", "lm_head.weight"));
  EXPECT_THAT(
      accepted_names({.family = &bert_family}, "bert.a.LayerNorm.bias"),
      ElementsAre("bert.a.LayerNorm.bias", "bert.a.LayerNorm.beta", "a.LayerNorm.bias", "a.LayerNorm.beta"));
  ModelDescription qwen{.family = &qwen3_family};
  const std::string table = "model.embed_tokens.weight";
  EXPECT_THAT(accepted_names(qwen, table), ElementsAre(table, "embed_tokens.weight", "lm_head.weight"));
  EXPECT_EQ(extra_tensor(qwen, "lm_head.weight").tied_to, table);
  qwen.config.tied = false;
  EXPECT_THAT(accepted_names(qwen, table), ElementsAre(table, "embed_tokens.weight"));
  EXPECT_EQ(extra_tensor(qwen, "lm_head.weight").what, Extra::none);
  EXPECT_THAT(accepted_names({.family = &bert_family}, "cls.predictions.bias"),
              ElementsAre("cls.predictions.bias", "cls.predictions.decoder.bias"));
}

TEST(ParameterParts, RefuseAGraphOfAnotherModel) {
  ModelDescription model = read_model_description(fixture("gpt2"));
  const Graph graph = test::gpt_graph(model, 256, 32);
  model.config.vocabulary = 257;
  test::expect_refused([&] { parameter_parts(model, graph); },
                       "'wte.weight' has 256 rows, and the model 257");
  model.config.vocabulary = 256;
  model.config.sequence = 31;
  test::expect_refused([&] { parameter_parts(model, graph); }, "'wpe.weight' has 32 rows");
}

}  // namespace
}  // namespace stowage
