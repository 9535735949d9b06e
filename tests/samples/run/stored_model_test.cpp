#include "samples/run/stored_model.h"
#include "samples/run/model_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "kernels/math/bfloat16.h"
#include "stowage/error.h"
#include "stowage/model_files.h"
#include "tests/support/expect_refused.h"

namespace stowage::samples {
namespace {

using ::testing::HasSubstr;

CheckpointState good() {
  CheckpointState state;
  state.configuration = {
      {"model.kind", "gpt"},      {"model.layers", "2"},    {"model.width", "32"},
      {"model.heads", "4"},       {"model.sequence", "9"},  {"model.vocabulary", "300"},
      {"model.epsilon", "1e-05"}, {"model.dropout", "0.5"}, {"model.padded_vocabulary", "320"}};
  return state;
}

TEST(SizesIn, AreTheConfigurations) {
  const ModelConfig sizes = sizes_in(good(), "folder");
  EXPECT_EQ(sizes.layers, 2);
  EXPECT_EQ(sizes.width, 32);
  EXPECT_EQ(sizes.heads, 4);
  EXPECT_EQ(sizes.sequence, 9);
  EXPECT_EQ(sizes.vocabulary, 300);
  EXPECT_EQ(sizes.padded_vocabulary, 320);
  EXPECT_EQ(sizes.epsilon, 1e-5);
  EXPECT_EQ(sizes.dropout, 0);
}

TEST(SizesIn, WhatIsNoSizeIsRefusedByItsField) {
  const auto expect_refused = [](const std::string& field, const std::string& value) {
    CheckpointState state = good();
    if (value.empty())
      state.configuration.erase(field);
    else
      state.configuration[field] = value;
    try {
      family_in(state, "folder");
      sizes_in(state, "folder");
      ADD_FAILURE() << "accepted: " << field;
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.what(), HasSubstr("folder/state.json: 'configuration." + field + "'"));
    }
  };
  expect_refused("model.kind", "bert");
  expect_refused("model.kind", "");
  for (const char* value : {"", "0", "-1", "16777217", "2x", "two"}) expect_refused("model.width", value);
  for (const char* value : {"", "2", "nan"}) expect_refused("model.epsilon", value);
}

TEST(FamilyFields, AreReadAsWritten) {
  EXPECT_TRUE(family_fields(ModelConfig{}).empty());
  ModelConfig config{.layers = 2, .key_heads = 2, .head_width = 64, .inner = 96, .tied = false};
  config.attention_bias = config.head_norms = true;
  config.rotary_theta = 1e6 / 3;
  config.rotary_scaling = nn::RotaryScaling{.factor = 0.1 + 8, .original_positions = 4096};
  config.windows = {0, 4096};
  config.keep_tokens = 0.1 + 0.2;
  const auto fields = family_fields(config);
  for (const auto& [name, value] : fields) EXPECT_TRUE(is_family_field(name)) << name;
  EXPECT_EQ(fields.size(), 10U);
  ModelConfig read{.layers = 2};
  take_family_fields(fields, "state.json", read);
  EXPECT_EQ(read, config);
  EXPECT_FALSE(is_family_field("model.width"));
}

TEST(FamilyFields, RefuseWhatNoModelHas) {
  const auto refused = [](const std::string& field, const std::string& value) {
    ModelConfig config;
    test::expect_refused(
        [&] {
          take_family_fields({{field, value}}, "state.json", config);
        },
        "state.json: 'configuration." + field + "' is \"" + value + "\"");
  };
  for (const char* value : {"", "-1", "x", "1.5", "1e30", "2,3"}) refused("model.key_heads", value);
  refused("model.tied", "2");
  for (const char* value : {"nan", "inf", "1,2"}) refused("model.rotary_theta", value);
  for (const char* value : {"8,1,4", "8,1,4,0.5", "8,1,4,"}) refused("model.rotary_scaling", value);
  refused("model.windows", "0,-1");
  for (const char* value : {"0", "1.5", "-1", "half", "0.5,1"}) refused("model.keep_tokens", value);
}

TEST(MomentsIn, AreF32WhereNothingIsSaid) {
  CheckpointState state = good();
  EXPECT_EQ(moments_in(state, "folder"), Moments::f32);
  state.configuration["optimizer.moments"] = "8bit";
  EXPECT_EQ(moments_in(state, "folder"), Moments::eight_bit);
  state.configuration["optimizer.moments"] = "4bit";
  EXPECT_THROW(moments_in(state, "folder"), InvalidInput);
}

TEST(Widened, KeepsValues) {
  const std::array<std::uint16_t, 3> narrow = {0x3f80, 0xc000, 0};  // 1, -2, 0
  const std::vector<std::byte> wide = widened(DataType::bf16, std::as_bytes(std::span(narrow)));
  std::array<float, 3> values{};
  ASSERT_EQ(wide.size(), sizeof values);
  std::memcpy(values.data(), wide.data(), sizeof values);
  EXPECT_EQ(values, (std::array<float, 3>{1, -2, 0}));
  const std::array<std::uint16_t, 3> halves = {0x3c00, 0xc000, 0x0001};
  std::memcpy(values.data(), widened(DataType::f16, std::as_bytes(std::span(halves))).data(), sizeof values);
  EXPECT_EQ(values, (std::array<float, 3>{1, -2, 0x1p-24F}));
}

// The model's own type, and whole tables, whatever the blocks of a training.
TEST(StoredModel, OfFilesIsReadInItsType) {
  Options options;
  options.init = std::string(STOWAGE_ROOT) + "/tests/fixtures/model_files/llama";
  options.initial = read_model_description(options.init);
  options.family = options.initial->family;
  options.model = options.initial->config;
  options.model.padded_vocabulary = 320;
  options.model.table_rows = 64;
  const auto read = [&](DataType type) {
    options.type = type;
    const StoredModel model(options);
    EXPECT_EQ(model.type(), type);
    EXPECT_FALSE(model.tokenizer().has_value());
    ModelWeights weights(model.family(), model.sizes(), model.type());
    model.load(weights);
    const std::span<const std::byte> value = std::as_const(weights).value("lm_head.weight");
    return std::vector<std::byte>(value.begin(), value.end());
  };
  const std::vector<std::byte> wide = read(DataType::f32), narrow = read(DataType::bf16);
  ASSERT_EQ(wide.size(), 320U * 32 * sizeof(float));
  ASSERT_EQ(narrow.size(), wide.size() / 2);
  for (std::size_t i = 0; i < wide.size() / 4; ++i) {
    float value = 0;
    Bfloat16 rounded;
    std::memcpy(&value, wide.data() + 4 * i, sizeof value);
    std::memcpy(&rounded, narrow.data() + 2 * i, sizeof rounded);
    EXPECT_EQ(Bfloat16(value).bits, rounded.bits);
  }
}

}  // namespace
}  // namespace stowage::samples
