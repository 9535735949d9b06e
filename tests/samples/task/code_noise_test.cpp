#include "samples/task/code_noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "stowage/evaluate.h"

namespace stowage::samples {
namespace {

Options options_of(DataType type, std::optional<CodeBits> bits, std::int64_t micro_batches) {
  Options options;
  options.family = &gpt_family;
  options.type = type;
  options.model = {.layers = 1, .width = 64, .heads = 2, .vocabulary = 16, .sequence = 128, .batch = 4};
  options.model.micro_batches = micro_batches;
  options.model.code_activations = bits;
  options.model.dropout = 0.2;
  return options;
}
Graph step_of(const Options& options) {
  GraphBuilder builder(options.type);
  return builder.finish(gpt(builder, options.model).loss, {});
}

// Initial values of the parameters.
ReadParameter read_initial(const Graph& graph) {
  return [&graph](const std::string& name) {
    for (const Tensor& tensor : graph.tensors) {
      if (tensor.name != name) continue;
      Tensor wide = tensor;
      wide.type = DataType::f32;
      std::vector<std::byte> value(wide.bytes());
      initialize(wide, 3, value);
      return value;
    }
    return std::vector<std::byte>();
  };
}

std::vector<CodeNoise> noise(const Options& options) {
  const Graph graph = step_of(options);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(options.model.batch * options.model.sequence));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * i % 16);
  return code_noise(graph, options, {tokens, tokens}, read_initial(graph));
}

TEST(CodeNoise, IsThatOfEachCodedTensor) {
  for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
    const std::vector<CodeNoise> eight = noise(options_of(type, CodeBits::eight, 1));
    const std::vector<CodeNoise> four = noise(options_of(type, CodeBits::four, 1));
    ASSERT_EQ(eight.size(), 2U);
    EXPECT_EQ(eight[0].tensor, "h.0.attn.c_attn");
    EXPECT_EQ(eight[1].tensor, "h.0.mlp.c_fc.pre");
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(four[i].tensor, eight[i].tensor);
      // Four bits less are 24 dB less, and an error 16 times as large, or nearly.
      EXPECT_NEAR(eight[i].decibels - four[i].decibels, 24, 2);
      EXPECT_NEAR(std::log2(four[i].largest_error / eight[i].largest_error), 4, 1.5);
      EXPECT_NEAR(four[i].decibels, 20, 3);
    }
  }
}

TEST(CodeNoise, OfMicroBatchesIsThatOfTheFirst) {
  const std::vector<CodeNoise> whole = noise(options_of(DataType::f32, CodeBits::eight, 1));
  const std::vector<CodeNoise> split = noise(options_of(DataType::f32, CodeBits::eight, 2));
  ASSERT_EQ(split.size(), whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(split[i].tensor, whole[i].tensor);
    EXPECT_EQ(split[i].decibels, whole[i].decibels);
  }
}

// Zeros have no error, and what is not finite shows.
TEST(CodeNoise, OfZerosIsNoneAndOfNaNsIsNaN) {
  const Options options = options_of(DataType::f16, CodeBits::eight, 1);
  const Graph graph = step_of(options);
  const std::vector<std::int32_t> tokens(512, 1);
  for (const float filled : {0.0F, 1e30F}) {
    const auto read = [&](const std::string& name) {
      std::vector<std::byte> value = read_initial(graph)(name);
      if (!name.ends_with("c_fc.weight")) return value;
      auto* const weights = reinterpret_cast<float*>(value.data());
      std::fill(weights, weights + value.size() / sizeof(float), filled);
      return value;
    };
    const CodeNoise found = code_noise(graph, options, {tokens, tokens}, read).back();
    EXPECT_EQ(found.tensor, "h.0.mlp.c_fc.pre");
    if (filled == 0) {
      EXPECT_EQ(found.decibels, std::numeric_limits<double>::infinity());
      EXPECT_EQ(found.largest_error, 0);
    } else {
      EXPECT_TRUE(std::isnan(found.decibels));
      EXPECT_TRUE(std::isnan(found.largest_error));
    }
  }
}

// Of a long sample only the first tokens are looked at.
TEST(CodeNoise, IsOfAFewTokens) {
  Options options = options_of(DataType::f32, CodeBits::eight, 1);
  options.model.sequence = most_noise_tokens;
  const std::vector<CodeNoise> expected = noise(options);
  const Graph few = step_of(options);
  options.model.sequence = 2 * most_noise_tokens;
  const Graph graph = step_of(options);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(options.model.batch * options.model.sequence));
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * i % 16);
  const std::vector<CodeNoise> found = code_noise(graph, options, {tokens, tokens}, read_initial(few));
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].decibels, expected[i].decibels);
}

TEST(CodeNoise, IsNoneWithoutCodesAndOfSmallTensors) {
  EXPECT_TRUE(noise(options_of(DataType::f32, {}, 1)).empty());
  Options small = options_of(DataType::f32, CodeBits::eight, 1);
  small.model.sequence = 8;
  EXPECT_TRUE(noise(small).empty());
}

}  // namespace
}  // namespace stowage::samples
