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
