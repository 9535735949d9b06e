// config.json of Llama, Mistral, Qwen2 and Qwen3.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "stowage/model_files.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using nlohmann::json;
using test::expect_refused;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// As transformers 4 writes it.
constexpr const char* llama_text = R"({
  "architectures": [
    "LlamaForCausalLM"
  ],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "bos_token_id": 128000,
  "eos_token_id": [
    128001,
    128008
  ],
  "head_dim": 64,
  "hidden_act": "silu",
  "hidden_size": 2048,
  "initializer_range": 0.02,
  "intermediate_size": 8192,
  "max_position_embeddings": 131072,
  "mlp_bias": false,
  "model_type": "llama",
  "num_attention_heads": 32,
  "num_hidden_layers": 16,
  "num_key_value_heads": 8,
  "pretraining_tp": 1,
  "rms_norm_eps": 1e-05,
  "rope_scaling": {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3"
  },
  "rope_theta": 500000.0,
  "tie_word_embeddings": true,
  "torch_dtype": "bfloat16",
  "transformers_version": "4.45.0",
  "use_cache": true,
  "vocab_size": 128256
}
)";

constexpr const char* mistral_text = R"({
  "architectures": ["MistralForCausalLM"],
  "attention_dropout": 0.0,
  "bos_token_id": 1,
  "eos_token_id": 2,
  "hidden_act": "silu",
  "hidden_size": 4096,
  "intermediate_size": 14336,
  "max_position_embeddings": 32768,
  "model_type": "mistral",
  "num_attention_heads": 32,
  "num_hidden_layers": 3,
  "num_key_value_heads": 8,
  "rms_norm_eps": 1e-05,
  "rope_theta": 10000.0,
  "sliding_window": 4096,
  "tie_word_embeddings": false,
  "torch_dtype": "bfloat16",
  "vocab_size": 32000
})";

constexpr const char* qwen2_text = R"({
  "architectures": ["Qwen2ForCausalLM"],
  "attention_dropout": 0.0,
  "bos_token_id": 151643,
  "eos_token_id": 151645,
  "hidden_act": "silu",
  "hidden_size": 896,
  "intermediate_size": 4864,
  "max_position_embeddings": 32768,
  "max_window_layers": 2,
  "model_type": "qwen2",
  "num_attention_heads": 14,
  "num_hidden_layers": 4,
  "num_key_value_heads": 2,
  "rms_norm_eps": 1e-06,
  "rope_theta": 1000000.0,
  "sliding_window": 32768,
  "tie_word_embeddings": true,
  "use_sliding_window": false,
  "vocab_size": 151936
})";

// As transformers 5 writes it.
constexpr const char* qwen3_text = R"({
  "architectures": ["Qwen3ForCausalLM"],
  "attention_bias": false,
  "attention_dropout": 0.0,
  "dtype": "bfloat16",
  "eos_token_id": 151645,
  "head_dim": 128,
  "hidden_act": "silu",
  "hidden_size": 1024,
  "intermediate_size": 3072,
  "layer_types": ["full_attention", "full_attention", "full_attention"],
  "max_position_embeddings": 40960,
  "max_window_layers": 3,
  "model_type": "qwen3",
  "num_attention_heads": 16,
  "num_hidden_layers": 3,
  "num_key_value_heads": 8,
  "pad_token_id": null,
  "rms_norm_eps": 1e-06,
  "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
  "sliding_window": null,
  "tie_word_embeddings": true,
  "transformers_version": "5.0.0",
  "use_sliding_window": false,
  "vocab_size": 151936
})";

constexpr const char* all_texts[] = {llama_text, mistral_text, qwen2_text, qwen3_text};

ModelDescription read_text(const std::string& text) { return model_description_from_json(text, "c.json"); }
ModelDescription read_fields(const json& config) { return read_text(config.dump()); }
json changed(const char* text, const json& changes) {
  json config = json::parse(text);
  for (const auto& [name, value] : changes.items()) config[name] = value;
  return config;
}
json without(const char* text, const std::vector<const char*>& names) {
  json config = json::parse(text);
  for (const char* name : names) config.erase(name);
  return config;
}

// Refuses the text with these fields, with a message about the first.
void expect_changes_refused(const char* text, const json& changes, const std::string& words) {
  expect_refused([&] { read_fields(changed(text, changes)); }, "c.json: '" + words);
}

TEST(LlamaConfig, ReadsLlama) {
  const ModelDescription model = read_text(llama_text);
  ModelDescription expected{.family = &llama_family, .config = llama_family.defaults};
  expected.config.sequence = 131072;
  expected.begin_token = 128000;
  EXPECT_EQ(model, expected);
  EXPECT_EQ(model.config.rotary_scaling->factor, 32);
  EXPECT_FALSE(model.end_token);
}

TEST(LlamaConfig, ReadsMistral) {
  const ModelConfig config = read_text(mistral_text).config;
  EXPECT_EQ(config.head_width, 128);
  EXPECT_EQ(config.key_heads, 8);
  EXPECT_EQ(config.inner, 14336);
  EXPECT_FALSE(config.tied);
  EXPECT_FALSE(config.rotary_scaling);
  EXPECT_THAT(config.windows, ElementsAre(4096, 4096, 4096));
  EXPECT_THAT(read_fields(changed(mistral_text, {{"sliding_window", nullptr}})).config.windows, IsEmpty());
}

TEST(LlamaConfig, ReadsQwens) {
  const ModelConfig qwen2 = read_text(qwen2_text).config;
  EXPECT_TRUE(qwen2.attention_bias);
  EXPECT_TRUE(qwen2.tied);
  EXPECT_EQ(qwen2.head_width, 64);
  EXPECT_EQ(qwen2.epsilon, 1e-6);
  EXPECT_THAT(qwen2.windows, IsEmpty());
  const ModelDescription qwen3 = read_text(qwen3_text);
  EXPECT_TRUE(qwen3.config.head_norms);
  EXPECT_FALSE(qwen3.config.attention_bias);
  EXPECT_EQ(qwen3.config.rotary_theta, 1e6);
  EXPECT_EQ(qwen3.config.head_width, 128);
  EXPECT_EQ(qwen3.config.sequence, 40960);
  EXPECT_EQ(qwen3.end_token, 151645);
}

TEST(LlamaConfig, AbsentFieldsHaveTheValuesOfTheirClass) {
  const std::vector<const char*> absent = {"num_key_value_heads", "head_dim",          "rms_norm_eps",
                                           "tie_word_embeddings", "attention_dropout", "rope_theta",
                                           "rope_scaling",        "rope_parameters",   "layer_types",
                                           "use_sliding_window",  "architectures"};
  const auto heads = [&](const char* text) {
    json config = without(text, absent);
    config["num_attention_heads"] = 32;
    const ModelConfig read_config = read_fields(config).config;
    EXPECT_EQ(read_config.epsilon, 1e-6);
    EXPECT_FALSE(read_config.tied);
    EXPECT_EQ(read_config.dropout, 0);
    EXPECT_FALSE(read_config.attention_dropout);
    EXPECT_EQ(read_config.rotary_theta, 10000);
    EXPECT_FALSE(read_config.rotary_scaling);
    return std::pair(read_config.key_heads, read_config.head_width);
  };
  EXPECT_EQ(heads(llama_text), std::pair(std::int64_t{32}, std::int64_t{64}));
  EXPECT_EQ(heads(mistral_text), std::pair(std::int64_t{8}, std::int64_t{128}));
  EXPECT_EQ(heads(qwen3_text), std::pair(std::int64_t{32}, std::int64_t{128}));
  json null = changed(qwen3_text, {{"head_dim", nullptr}, {"num_key_value_heads", nullptr}});
  EXPECT_EQ(read_fields(null).config.head_width, 64);
  EXPECT_EQ(read_fields(null).config.key_heads, 16);
  EXPECT_EQ(read_fields(changed(llama_text, {{"attention_dropout", 0.25}})).config.attention_dropout, 0.25);
}

TEST(LlamaConfig, ReadsWindows) {
  const auto windows = [](const char* text, const json& changes) {
    return read_fields(changed(text, changes)).config.windows;
  };
  const json used = {{"use_sliding_window", true}, {"sliding_window", 512}};
  EXPECT_THAT(windows(qwen2_text, used), ElementsAre(0, 0, 512, 512));
  json all = used;
  all["max_window_layers"] = 4;
  EXPECT_THAT(windows(qwen2_text, all), IsEmpty());
  // Absent fields have the values of their classes.
  const auto layers = static_cast<std::size_t>(read_text(mistral_text).config.layers);
  EXPECT_EQ(read_fields(without(mistral_text, {"sliding_window"})).config.windows,
            std::vector<std::int64_t>(layers, 4096));
  json deep = changed(qwen2_text, used);
  deep.erase("max_window_layers");
  deep.erase("sliding_window");
  EXPECT_THAT(read_fields(deep).config.windows, IsEmpty());
  deep["num_hidden_layers"] = 30;
  const std::vector<std::int64_t> of_deep = read_fields(deep).config.windows;
  ASSERT_EQ(of_deep.size(), 30U);
  EXPECT_EQ(of_deep[27], 0);
  EXPECT_EQ(of_deep[28], 4096);
  json types = used;
  types["layer_types"] = {"sliding_attention", "full_attention", "full_attention", "sliding_attention"};
  EXPECT_THAT(windows(qwen2_text, types), ElementsAre(512, 0, 0, 512));
  const char* const with = "sliding_attention";
  EXPECT_THAT(windows(mistral_text, {{"layer_types", {with, with, with}}}), ElementsAre(4096, 4096, 4096));
  expect_changes_refused(mistral_text, {{"layer_types", {"full_attention", with, "full_attention"}}},
                         "layer_types' says another thing than sliding_window");
  expect_changes_refused(qwen2_text, {{"layer_types", {"full_attention"}}},
                         "layer_types' has 1 items, and num_hidden_layers is 4");
  expect_changes_refused(
      qwen3_text, {{"layer_types", {"full_attention", "full_attention", "chunked_attention"}}},
      "layer_types[2]' is \"chunked_attention\"; \"full_attention\" and \"sliding_attention\"");
  expect_changes_refused(qwen3_text,
                         {{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}},
                         "layer_types[2]' is \"sliding_attention\", and the model has no sliding_window");
  expect_changes_refused(mistral_text, {{"sliding_window", 0}}, "sliding_window' is 0");
  expect_changes_refused(qwen2_text,
                         {{"use_sliding_window", true}, {"max_window_layers", -1}, {"sliding_window", 1}},
                         "max_window_layers' is -1");
}

TEST(LlamaConfig, RefusesWhatIsNotComputed) {
  for (const char* text : all_texts) {
    expect_changes_refused(text, {{"hidden_act", "gelu"}}, R"(hidden_act' is "gelu"; "silu" is supported)");
    expect_changes_refused(text, {{"quantization_config", {{"bits", 4}}}}, "quantization_config' is");
    expect_changes_refused(text, {{"text_config", json::object()}}, "text_config' is");
    expect_changes_refused(text, {{"mlp_bias", true}}, "mlp_bias' is true");
    expect_changes_refused(text, {{"pretraining_tp", 2}}, "pretraining_tp' is 2; 1 is supported");
    expect_changes_refused(text, {{"architectures", {"LlamaForSequenceClassification"}}},
                           R"(architectures[0]' is "LlamaForSequenceClassification"; a class)");
    expect_changes_refused(text, {{"num_key_value_heads", 5}}, "num_key_value_heads' makes");
    expect_changes_refused(text, {{"head_dim", 63}}, "head_dim' is 63; an even number");
    expect_changes_refused(text, {{"num_hidden_layers", 2147483648}}, "num_hidden_layers' is 2147483648");
    expect_changes_refused(text, {{"intermediate_size", 0}}, "intermediate_size' is 0");
    for (const char* needed : {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
                               "max_position_embeddings", "vocab_size"})
      expect_refused([&] { read_fields(without(text, {needed})); },
                     "'" + std::string(needed) + "' is not there");
  }
  for (const char* text : {llama_text, mistral_text, qwen3_text})
    expect_changes_refused(text, {{"attention_bias", true}}, "attention_bias' is true");
  expect_changes_refused(qwen2_text, {{"num_attention_heads", 15}}, "num_key_value_heads' makes");
  json odd = without(mistral_text, {"num_key_value_heads"});
  odd["num_attention_heads"] = 12;
  expect_refused([&] { read_fields(odd); }, "'num_attention_heads' makes 12 heads of queries and 8 of keys");
  expect_changes_refused(llama_text, {{"head_dim", nullptr}, {"hidden_size", 2049}}, "hidden_size' is 2049");
  expect_changes_refused(llama_text, {{"head_dim", nullptr}, {"hidden_size", 2080}},
                         "hidden_size' makes heads of 65");
}

TEST(LlamaConfig, RefusesOtherTurns) {
  const json good = json::parse(llama_text)["rope_scaling"];
  const auto refused = [&](const json& changes, const std::string& words) {
    json scaling = good;
    for (const auto& [name, value] : changes.items()) scaling[name] = value;
    expect_changes_refused(llama_text, {{"rope_scaling", scaling}}, "rope_scaling." + words);
    json config = without(llama_text, {"rope_scaling"});
    config["rope_parameters"] = scaling;
    expect_refused([&] { read_fields(config); }, "c.json: 'rope_parameters." + words);
  };
  for (const char* type : {"yarn", "linear", "dynamic", "longrope"})
    refused({{"rope_type", type}}, "rope_type' is \"" + std::string(type) + "\"; \"default\" and \"llama3\"");
  refused({{"type", "linear"}}, "type' is \"linear\", and rope_type \"llama3\"");
  for (const json& value : {json(0), json(-2), json(0.5)})
    refused({{"factor", value}}, "factor' is " + value.dump() + "; at least 1");
  for (const json& value : {json(), json("8"), json(std::nan(""))})
    refused({{"factor", value}}, "factor' is not a finite number");
  refused({{"low_freq_factor", 0}}, "low_freq_factor' is 0; a number above 0");
  refused({{"low_freq_factor", 4}}, "high_freq_factor' is 4; a number above low_freq_factor, 4");
  refused({{"original_max_position_embeddings", 0}}, "original_max_position_embeddings' is 0");
  expect_changes_refused(llama_text, {{"rope_scaling", json::object()}},
                         "rope_scaling.rope_type' is not there");
  expect_changes_refused(llama_text, {{"rope_theta", 0.5}}, "rope_theta' is 0.5; at least 1");
  expect_refused(
      [] { read_text(std::string(llama_text).replace(std::string(llama_text).find("500000.0"), 8, "NaN")); },
      "c.json: ");
}

TEST(LlamaConfig, BothSpellingsOfTurnsMustAgree) {
  json newer = json::parse(llama_text)["rope_scaling"];
  newer["rope_theta"] = 500000;
  EXPECT_EQ(read_fields(changed(llama_text, {{"rope_parameters", newer}})), read_text(llama_text));
  json only = without(llama_text, {"rope_scaling", "rope_theta"});
  only["rope_parameters"] = newer;
  EXPECT_EQ(read_fields(only), read_text(llama_text));
  newer["rope_theta"] = 10000;
  expect_changes_refused(llama_text, {{"rope_parameters", newer}},
                         "rope_parameters.rope_theta' is 10000, and another rope_theta");
  newer["rope_theta"] = 500000;
  newer["factor"] = 8;
  expect_changes_refused(llama_text, {{"rope_parameters", newer}}, "rope_parameters' says another thing");
  json older = json::parse(llama_text)["rope_scaling"];
  older["type"] = "llama3";
  older.erase("rope_type");
  EXPECT_EQ(read_fields(changed(llama_text, {{"rope_scaling", older}})), read_text(llama_text));
  // transformers 5 reads a theta within rope_scaling.
  json within = without(llama_text, {"rope_theta"});
  within["rope_scaling"]["rope_theta"] = 500000;
  EXPECT_EQ(read_fields(within), read_text(llama_text));
  within["rope_scaling"]["partial_rotary_factor"] = 0.5;
  expect_refused([&] { read_fields(within); }, "partial_rotary_factor' is 0.5; 1 is supported");
}

TEST(LlamaConfig, AnUnchangedModelIsWrittenAsItWasRead) {
  for (const char* text : all_texts) EXPECT_EQ(to_json(read_text(text)), text);
}

TEST(LlamaConfig, ChangesOnlyWhatDiffers) {
  ModelDescription model = read_text(llama_text);
  model.config.layers = 2;
  std::string expected = llama_text;
  expected.replace(expected.find("\"num_hidden_layers\": 16"), 23, "\"num_hidden_layers\": 2");
  EXPECT_EQ(to_json(model), expected);
  model = read_text(qwen3_text);
  model.config.rotary_theta = 5000;
  model.config.windows = {0, 7, 7};
  const json written = json::parse(to_json(model));
  EXPECT_FALSE(written.contains("rope_parameters"));
  EXPECT_FALSE(written.contains("layer_types"));
  EXPECT_EQ(written["transformers_version"], "5.0.0");
  EXPECT_EQ(read_fields(written), model);
}

TEST(LlamaConfig, WithoutASourceIsReadAsWritten) {
  for (const char* text : all_texts) {
    ModelDescription model = read_text(text);
    model.source.clear();
    EXPECT_EQ(read_text(to_json(model)), model) << text;
    EXPECT_EQ(model, read_text(text));
  }
  ModelDescription qwen = read_text(qwen2_text);
  qwen.source.clear();
  for (const std::vector<std::int64_t>& windows :
       {std::vector<std::int64_t>{9, 9, 9, 9}, {0, 9, 0, 0}, {0, 0, 0, 9}}) {
    qwen.config.windows = windows;
    EXPECT_EQ(read_text(to_json(qwen)), qwen);
  }
  ModelDescription mistral = read_text(mistral_text);
  mistral.config.windows = {5, 5, 5};
  EXPECT_EQ(read_text(to_json(mistral)), mistral);
  mistral.config.windows = {0, 5, 0};
  expect_refused([&] { to_json(mistral); }, "some layers of a Mistral have a window");
  mistral.config.windows = {4, 5, 0};
  expect_refused([&] { to_json(mistral); }, "windows of 4 and of 5 tokens");
  ModelDescription llama = read_text(llama_text);
  llama.config.head_norms = true;
  expect_refused([&] { to_json(llama); }, "no Llama has this `head_norms`");
  llama.config.head_norms = false;
  llama.config.windows.assign(16, 4);
  expect_refused([&] { to_json(llama); }, "a Llama has no windows");
}

}  // namespace
}  // namespace stowage
