#include "samples/task/decoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "samples/task/forward_pass.h"
#include "samples/task/generate.h"
#include "stowage/error.h"
#include "stowage/evaluate.h"

namespace stowage::samples {
namespace {

using Tokens = std::vector<std::int32_t>;

struct Named {
  std::string name;
  const ModelFamily* family;
  ModelConfig config;
};

void PrintTo(const Named& model, std::ostream* out) { *out << model.name; }

// Small models of every family, with all that the families differ in.
std::vector<Named> models() {
  const ModelConfig small = {
      .layers = 3, .width = 24, .heads = 4, .vocabulary = 61, .sequence = 24, .batch = 2, .dropout = 0.25};
  ModelConfig grouped = small;
  grouped.key_heads = 2;
  grouped.inner = 40;
  ModelConfig llama = grouped;
  llama.tied = false;
  llama.rotary_scaling = nn::RotaryScaling{.factor = 4, .original_positions = 8};
  ModelConfig mistral = grouped;
  mistral.tied = false;
  mistral.key_heads = 1;
  mistral.windows = {5, 5, 5};
  ModelConfig qwen2 = grouped;
  qwen2.attention_bias = true;
  qwen2.windows = {0, 7, 1};
  qwen2.padded_vocabulary = 64;
  qwen2.table_rows = 16;
  ModelConfig qwen3 = grouped;
  qwen3.head_norms = true;
  qwen3.head_width = 10;
  return {{"gpt", &gpt_family, small},
          {"llama", &llama_family, llama},
          {"mistral", &mistral_family, mistral},
          {"qwen2", &qwen2_family, qwen2},
          {"qwen3", &qwen3_family, qwen3}};
}

// Returns values by which the model's logits depend on all that it sees: matrices larger than the initial
// ones, and neither gains of 1 nor biases of 0.
std::vector<std::byte> lively(const Tensor& tensor) {
  Tensor drawn = tensor;
  drawn.type = DataType::f32;
  drawn.initializer.standard_deviation = drawn.shape.size() > 1 ? 0.4 : 0.2;
  std::vector<std::byte> value(drawn.bytes());
  initialize(drawn, 5, value);
  return value;
}

ReadParameter reader(const Graph& graph) {
  return [&graph](const std::string& name) {
    for (const Tensor& tensor : graph.tensors)
      if (tensor.name == name) return lively(tensor);
    ADD_FAILURE() << "no parameter " << name;
    return std::vector<std::byte>{};
  };
}

ModelWeights weights_of(const Named& model, DataType type = DataType::f32) {
  ModelWeights weights(*model.family, model.config, type);
  weights.take(reader(weights.graph()));
  return weights;
}

Tokens some_tokens(std::int64_t count) {
  Tokens tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::int32_t>((i * i * 7 + 3 * i + 5) % 61);
  return tokens;
}

// Returns the logits of all tokens at once, by the forward pass that evaluation uses.
std::vector<std::vector<float>> whole_forward(const Named& model, const Tokens& tokens) {
  ModelConfig sizes = without_dropout(model.config, 1);
  sizes.sequence = std::ssize(tokens);
  if (model.family->learned_positions) sizes.sequence = model.config.sequence;
  GraphBuilder builder;
  const BuiltModel built = model.family->build(builder, sizes);
  const Graph graph = builder.finish_without_update(built.loss);
  const ForwardPass pass(graph, {built.tokens.id}, {built.logits.id});
  Tokens padded = tokens;
  padded.resize(static_cast<std::size_t>(sizes.sequence));
  const auto results = pass.run({padded}, reader(graph));
  const auto all = floats_of(results[0]);
  const std::size_t columns = all.size() / padded.size();
  std::vector<std::vector<float>> rows;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    rows.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(i * columns),
                      all.begin() + static_cast<std::ptrdiff_t>((i + 1) * columns));
  return rows;
}

void expect_near(std::span<const float> found, std::span<const float> right, double tolerance) {
  ASSERT_EQ(found.size(), right.size());
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < right.size(); ++i) {
    difference = std::max<double>(difference, std::abs(found[i] - right[i]));
    size = std::max<double>(size, std::abs(right[i]));
  }
  EXPECT_LE(difference, tolerance * size);
  EXPECT_GT(size, 0.1);
}

class EachFamily : public ::testing::TestWithParam<Named> {};
INSTANTIATE_TEST_SUITE_P(Models, EachFamily, ::testing::ValuesIn(models()),
                         [](const auto& info) { return info.param.name; });

TEST_P(EachFamily, GivesTheLogitsOfTheWholeSequence) {
  const ModelWeights weights = weights_of(GetParam());
  const Tokens tokens = some_tokens(24);
  const auto right = whole_forward(GetParam(), tokens);
  // A prompt and then token by token, all token by token, and all as one prompt.
  for (const std::size_t prompt : {std::size_t{9}, std::size_t{1}, std::size_t{24}}) {
    Decoder decoder(weights, 24);
    const std::span<const std::int32_t> all = tokens;
    expect_near(decoder.logits(all.first(prompt)), right[prompt - 1], 2e-5);
    for (std::size_t i = prompt; i < all.size(); ++i)
      expect_near(decoder.logits(all.subspan(i, 1)), right[i], 2e-5);
    EXPECT_EQ(decoder.room(), 0);
  }
}

TEST_P(EachFamily, PicksTheGreedyTokensOfTheWholeSequence) {
  const ModelWeights weights = weights_of(GetParam());
  Tokens tokens = some_tokens(6);
  const Tokens prompt = tokens;
  const std::vector<bool> usable(61, true);
  while (tokens.size() < 24) tokens.push_back(pick(whole_forward(GetParam(), tokens).back(), usable, 0, 0));
  Tokens written = prompt;
  generate_tokens(weights, prompt, usable, {.tokens = 18, .temperature = 0}, [&](std::int32_t token) {
    written.push_back(token);
    return true;
  });
  EXPECT_EQ(written, tokens);
}

TEST_P(EachFamily, ForgetsWhenAsked) {
  const ModelWeights weights = weights_of(GetParam());
  Decoder decoder(weights, 20), fresh(weights, 20);
  decoder.logits(some_tokens(13));
  decoder.forget();
  const Tokens others = {3, 1, 4, 1, 5};
  const auto again = decoder.logits(others);
  const auto right = fresh.logits(others);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), right.begin(), right.end()));
}

// Narrow types keep some 8 and 11 bits; each family stays within their rounding of f32.
TEST_P(EachFamily, ComputesInTheTypeOfItsWeights) {
  const Tokens tokens = some_tokens(15);
  const auto right = whole_forward(GetParam(), tokens).back();
  for (const auto& [type, tolerance] : {std::pair{DataType::bf16, 0.12}, {DataType::f16, 0.02}}) {
    const ModelWeights weights = weights_of(GetParam(), type);
    EXPECT_EQ(2 * weights.bytes(), weights_of(GetParam()).bytes());
    Decoder decoder(weights, 15);
    expect_near(decoder.logits(tokens), right, tolerance);
  }
}

TEST(Decoder, LongPromptsGoInPasses) {
  Named model = models()[1];
  model.config.layers = 1;
  const ModelWeights weights = weights_of(model);
  const Tokens tokens = some_tokens(2 * most_tokens_of_pass + 3);
  Decoder at_once(weights, std::ssize(tokens)), one_by_one(weights, std::ssize(tokens));
  std::span<const float> last;
  for (const std::int32_t token : tokens) last = one_by_one.logits(std::span(&token, 1));
  expect_near(at_once.logits(tokens), last, 2e-5);
}

TEST(Decoder, RefusesMoreThanItHasRoomFor) {
  const ModelWeights weights = weights_of(models()[0]);
  EXPECT_THROW(Decoder(weights, 25), InvalidInput) << "the table has 24 positions";
  EXPECT_THROW(Decoder(weights, 0), InvalidInput);
  Decoder decoder(weights, 3);
  EXPECT_THROW(decoder.logits({}), InvalidInput);
  EXPECT_THROW(decoder.logits(some_tokens(4)), InvalidInput);
  decoder.logits(some_tokens(3));
  EXPECT_THROW(decoder.logits(some_tokens(1)), InvalidInput);
  const ModelWeights empty(gpt_family, models()[0].config, DataType::f32);
  EXPECT_THROW(Decoder(empty, 3), InvalidInput) << "weights without values";
}

TEST(Decoder, TheCacheHasTheBytesOfKeysAndValues) {
  // Llama 3 8B: 131,072 bytes a token in bf16.
  const ModelConfig sizes = {.layers = 32, .width = 4096, .heads = 32, .key_heads = 8, .head_width = 128};
  EXPECT_EQ(cache_bytes(sizes, DataType::bf16, 10), 1310720U);
}

// Behind the last learned position the model goes on with the last half.
TEST(GenerateTokens, BeginsAnewBehindTheLastPosition) {
  Named model = models()[0];
  model.config.sequence = 8;
  const ModelWeights weights = weights_of(model);
  const std::vector<bool> usable(61, true);
  const auto continued = [&](const Tokens& prompt, std::uint64_t count) {
    Tokens written;
    generate_tokens(weights, prompt, usable, {.tokens = count, .temperature = 0}, [&](std::int32_t token) {
      written.push_back(token);
      return true;
    });
    return written;
  };
  Tokens all = some_tokens(6);
  const Tokens written = continued(all, 9);
  all.insert(all.end(), written.begin(), written.end());
  // 6, 7 and 8 tokens are seen; then the last 4, and up to 8 again.
  EXPECT_EQ(continued(Tokens(all.begin(), all.begin() + 8), 1).front(), all[8]);
  EXPECT_EQ(continued(Tokens(all.begin() + 5, all.begin() + 9), 5),
            Tokens(all.begin() + 9, all.begin() + 14));
  EXPECT_EQ(continued(Tokens(all.begin() + 10, all.begin() + 14), 1).front(), all[14]);
}

}  // namespace
}  // namespace stowage::samples
