#include "tools/choices/published_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "stowage/model_files.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"
#include "tools/choices/model_spec.h"

namespace stowage {
namespace {

ModelSpec named_by(const ModelWords& words) { return model_spec(words, DataType::bf16).value(); }

// The numbers of parameters that the models' cards give.
TEST(PublishedModels, HaveTheParametersOfTheirCards) {
  const std::map<std::string, std::int64_t> cards = {
      {"llama3.2-1b", 1'235'814'400}, {"llama3.2-3b", 3'212'749'824}, {"llama3-8b", 8'030'261'248},
      {"mistral-7b", 7'248'023'552},  {"qwen2.5-0.5b", 494'032'768},  {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-3b", 3'085'938'688},  {"qwen2.5-7b", 7'615'616'512},  {"qwen2.5-14b", 14'770'033'664},
      {"qwen3-0.6b", 596'049'920},    {"qwen3-1.7b", 1'720'574'976},  {"qwen3-4b", 4'022'468'096},
      {"qwen3-8b", 8'190'735'360},    {"qwen3-14b", 14'768'307'200}};
  std::string names;
  for (const auto& [name, parameters] : cards) {
    ModelSpec spec = named_by({.model = name, .sequence = "8"});
    spec.config.padded_vocabulary = 0;
    std::int64_t sum = 0;
    for (const Tensor& tensor : build(spec).tensors)
      if (tensor.kind == TensorKind::parameter) sum += tensor.elements();
    EXPECT_EQ(sum, parameters) << name;
    EXPECT_NE(published_names().find(name), std::string::npos);
  }
  EXPECT_FALSE(published_model("qwen3-9b"));
}

TEST(PublishedModels, TakeTheirShapeFromTheWords) {
  const ModelSpec spec =
      named_by({.model = "qwen3-8b", .sequence = "2048", .batch = "4", .micro_batches = "2"});
  EXPECT_EQ(spec.family, &qwen3_family);
  EXPECT_EQ(spec.config.sequence, 2048);
  EXPECT_EQ(spec.config.batch, 4);
  EXPECT_EQ(spec.config.micro_batches, 2);
  EXPECT_FALSE(spec.config.tied);
  EXPECT_EQ(describe(spec), "qwen3, 36 layers, width 4096, heads 32, vocabulary 151936");
  EXPECT_EQ(named_by({.model = "llama3-8b"}).config.sequence, 4096);
  EXPECT_EQ(named_by({.model = "gpt2-xl"}).config.width, 1600);
}

TEST(PublishedModels, AreReadFromAFolder) {
  const TemporaryFolder folder;
  ModelDescription model{.family = &qwen2_family, .config = published_model("qwen2.5-1.5b")->config};
  model.config.sequence = 1024;
  model.config.attention_dropout = 0.1;
  folder.make("config.json", to_json(model));
  const ModelSpec spec = named_by({.model = folder.file("")});
  EXPECT_EQ(spec.family, &qwen2_family);
  EXPECT_EQ(spec.config.sequence, 1024);
  EXPECT_EQ(spec.config.batch, 1);
  EXPECT_EQ(spec.config.key_heads, 2);
  EXPECT_FALSE(spec.config.attention_dropout);
}

TEST(PublishedModels, RefuseWhatIsNone) {
  const auto refused = [](const ModelWords& words, const std::string& saying) {
    test::expect_refused([&] { model_spec(words, DataType::f32); }, saying);
  };
  refused({.model = "qwen3-9b"}, "--model: \"qwen3-9b\" is neither a folder with config.json nor one of");
  refused({.model = "qwen3-8b", .heads = "4"}, "--heads 4: --model qwen3-8b has its own");
  refused({.model = "qwen3-8b", .vocabulary = "4"}, "--vocabulary 4: --model qwen3-8b has its own");
  refused({.gpt = "gpt2", .model = "qwen3-8b"}, "--gpt, --bert and --model each name a model");
  const TemporaryFolder folder;
  refused({.model = folder.file("")}, "--model");
  folder.make("config.json", R"({"model_type": "phi3"})");
  refused({.model = folder.file("")}, "'model_type' is \"phi3\"; supported are");
}

}  // namespace
}  // namespace stowage
