#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "stowage/model_files.h"
#include "tests/model_files/model_graphs.h"
#include "tests/support/expect_refused.h"
#include "tests/support/temporary_folder.h"

namespace stowage {
namespace {

using nlohmann::json;
using test::expect_refused;
using test::fixture;

json gpt_json() {
  return {{"model_type", "gpt2"}, {"n_layer", 3},       {"n_embd", 12},          {"n_head", 4},
          {"n_positions", 77},    {"vocab_size", 1000}, {"embd_pdrop", 0.2},     {"attn_pdrop", 0.0},
          {"bos_token_id", 5},    {"n_ctx", 77},        {"summary_type", "none"}};
}
json bert_json() {
  return {{"model_type", "bert"},         {"num_hidden_layers", 2},      {"hidden_size", 12},
          {"num_attention_heads", 3},     {"intermediate_size", 48},     {"vocab_size", 99},
          {"max_position_embeddings", 8}, {"hidden_dropout_prob", 0.25}, {"pad_token_id", 0}};
}

ModelDescription read(const json& config) { return model_description_from_json(config.dump(), "c.json"); }

void expect_field_refused(json config, const char* field, const json& value, const std::string& words) {
  config[field] = value;
  expect_refused([&] { read(config); }, "c.json: '" + std::string(field) + "' " + words);
}

TEST(ConfigJson, ReadsGpt) {
  const ModelDescription model = read(gpt_json());
  ModelDescription expected{.config = gpt_family.defaults};
  expected.config.layers = 3;
  expected.config.width = 12;
  expected.config.heads = 4;
  expected.config.vocabulary = 1000;
  expected.config.sequence = 77;
  expected.config.dropout = 0.2;
  expected.config.attention_dropout = 0;
  expected.config.residual_dropout = 0.1;
  expected.begin_token = 5;
  EXPECT_EQ(model, expected);
}

TEST(ConfigJson, ReadsBert) {
  const ModelDescription model = read(bert_json());
  EXPECT_EQ(model.family, &bert_family);
  EXPECT_EQ(model.config.layers, 2);
  EXPECT_EQ(model.config.width, 12);
  EXPECT_EQ(model.config.heads, 3);
  EXPECT_EQ(model.config.vocabulary, 99);
  EXPECT_EQ(model.config.sequence, 8);
  EXPECT_EQ(model.config.dropout, 0.25);
  EXPECT_FALSE(model.config.residual_dropout);
  EXPECT_TRUE(model.config.pretraining);
  EXPECT_EQ(model.config.epsilon, 1e-12);
}

TEST(ConfigJson, ReadsWhatItWrites) {
  for (const json& config : {gpt_json(), bert_json()}) {
    const ModelDescription model = read(config);
    EXPECT_EQ(model_description_from_json(to_json(model)), model);
  }
  // As check_model_files.py has transformers read it.
  EXPECT_EQ(to_json(read_model_description(fixture("bert"))),
            contents_of(fixture("bert_written_config.json")));
}

TEST(ConfigJson, RefusesWhatIsNotComputed) {
  expect_field_refused(gpt_json(), "model_type", "opt",
                       "is \"opt\"; supported are gpt2, bert, llama, mistral, qwen2, qwen3");
  expect_field_refused(gpt_json(), "activation_function", "relu", R"(is "relu"; "gelu_new" is supported)");
  expect_field_refused(gpt_json(), "n_inner", 47, "is 47; 4 times n_embd, 48, is supported");
  expect_field_refused(gpt_json(), "tie_word_embeddings", false, "is false; true is supported");
  expect_field_refused(gpt_json(), "scale_attn_weights", false, "is");
  expect_field_refused(gpt_json(), "scale_attn_by_inverse_layer_idx", true, "is");
  expect_field_refused(gpt_json(), "add_cross_attention", true, "is");
  json odd = gpt_json();
  odd["n_head"] = 5;
  expect_refused([&] { read(odd); }, "c.json: 'n_embd' is 12, which n_head 5 does not divide");
  expect_field_refused(bert_json(), "hidden_act", "gelu_new", "is");
  expect_field_refused(bert_json(), "position_embedding_type", "relative_key", "is");
  expect_field_refused(bert_json(), "type_vocab_size", 3, "is 3; 2 is supported");
  expect_field_refused(bert_json(), "is_decoder", true, "is");
}

TEST(ConfigJson, RefusesValuesOutOfRange) {
  for (const char* size : {"n_layer", "n_embd", "n_head", "n_positions", "vocab_size"}) {
    for (const json& value :
         {json(0), json(-1), json(1.5), json("2"), json(), json(INT64_MAX), json(UINT64_MAX)})
      expect_field_refused(gpt_json(), size, value, "is");
    json without = gpt_json();
    without.erase(size);
    expect_refused([&] { read(without); }, "'" + std::string(size) + "' is not there");
  }
  for (const json& value : {json(-0.1), json(1), json("0"), json()})
    expect_field_refused(gpt_json(), "attn_pdrop", value, "is");
  expect_field_refused(gpt_json(), "layer_norm_epsilon", 0, "is 0");
  expect_field_refused(bert_json(), "intermediate_size", json(), "is not");
}

// As transformers wrote them in 2019.
TEST(ConfigJson, ReadsThoseWithoutAType) {
  json gpt = gpt_json(), bert = bert_json();
  gpt.erase("model_type");
  bert.erase("model_type");
  bert["type_vocab_size"] = 2;
  EXPECT_EQ(read(gpt).family, &gpt_family);
  EXPECT_EQ(read(bert).family, &bert_family);
  gpt["architectures"] = {"GPT2LMHeadModel"};
  bert["architectures"] = {"BertForPreTraining"};
  EXPECT_EQ(read(gpt).family, &gpt_family);
  EXPECT_EQ(read(bert).family, &bert_family);
  bert["architectures"] = {"RobertaForMaskedLM"};
  expect_refused([&] { read(bert); }, "'model_type' is not there");
}

// As Python writes numbers that JSON has not.
TEST(ConfigJson, PassesOverNumbersThatAreNotFinite) {
  const auto with = [](const std::string& fields) {
    std::string text = gpt_json().dump();
    return text.replace(1, 0, fields);
  };
  const auto model = model_description_from_json(
      with(R"("a":NaN,"b":[Infinity,-Infinity],"task":"NaN \" Infinity",)"), "c.json");
  EXPECT_EQ(model.config.layers, 3);
  expect_refused([&] { model_description_from_json(with(R"("layer_norm_epsilon":NaN,)"), "c.json"); },
                 "'layer_norm_epsilon' is not");
  expect_refused([&] { model_description_from_json(with(R"("a":NaNs,)"), "c.json"); }, "does not parse");
}

TEST(ConfigJson, RefusesWhatIsNoConfig) {
  for (const char* text : {"", "{", "[]", "1", "{}", "\"gpt2\"", R"({"model_type":1})"})
    expect_refused([&] { model_description_from_json(text, "c.json"); }, "c.json: ");
  expect_refused([] { model_description_from_json(R"({"model_type":"gpt2","model_type":"bert"})"); },
                 "twice");
  expect_refused([] { model_description_from_json(std::string(1'000'000, '[')); }, "config.json: ");
  const TemporaryFolder folder;
  expect_refused([&] { read_model_description(folder.file("")); }, "config.json: cannot be read");
  expect_refused([] { read_model_description("nowhere"); }, "nowhere is not there; give a folder");
  folder.make("adapter_config.json", "{}");
  expect_refused([&] { read_model_description(folder.file("")); },
                 "holds an adapter, which is not read; merge");
}

TEST(ConfigJson, OfEveryFamilyIsReadAsWritten) {
  for (const ModelFamily* family : model_families()) {
    ModelDescription model{.family = family, .config = family->defaults};
    model.config.layers = 7;
    model.config.attention_dropout = 0.25;
    model.end_token = 3;
    EXPECT_EQ(model_description_from_json(to_json(model)), model) << family->name;
  }
}

TEST(ConfigJson, ReadsDropoutsAndEpsilon) {
  json same = gpt_json();
  same["embd_pdrop"] = same["attn_pdrop"] = 0.1;
  EXPECT_EQ(read(same).config.dropout, 0.1);
  EXPECT_FALSE(read(same).config.attention_dropout);
  EXPECT_FALSE(read(same).config.residual_dropout);
  same["layer_norm_epsilon"] = 1e-6;
  EXPECT_EQ(read(same).config.epsilon, 1e-6);
  json bert = bert_json();
  bert["attention_probs_dropout_prob"] = 0.125;
  EXPECT_EQ(read(bert).config.attention_dropout, 0.125);
}

}  // namespace
}  // namespace stowage
