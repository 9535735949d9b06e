#include "samples/task/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <set>
#include <span>

#include "stowage/evaluate.h"

namespace stowage::samples {
namespace {

// Of three tokens, all of which may be picked.
std::int32_t pick(std::span<const float> logits, double temperature, double uniform) {
  return samples::pick(logits, std::vector<bool>(3, true), temperature, uniform);
}

TEST(Pick, FollowsTheCumulativeProbabilities) {
  // softmax: 0.5, 0.25, 0.25
  const std::array<float, 3> logits = {std::log(2.0F), 0, 0};
  EXPECT_EQ(pick(logits, 1, 0), 0);
  EXPECT_EQ(pick(logits, 1, 0.49), 0);
  EXPECT_EQ(pick(logits, 1, 0.51), 1);
  EXPECT_EQ(pick(logits, 1, 0.76), 2);
  EXPECT_EQ(pick(logits, 1, 0.999999), 2);
  // Half the temperature squares the odds: 4 : 1 : 1.
  EXPECT_EQ(pick(logits, 0.5, 0.66), 0);
  EXPECT_EQ(pick(logits, 0.5, 0.67), 1);
}

TEST(Pick, TakesTheFirstOfTheLikeliestAtTemperatureZero) {
  const std::array<float, 3> logits = {1, 1.0001F, 1.0001F};
  for (const double uniform : {0.0, 0.5, 0.999999}) EXPECT_EQ(pick(logits, 0, uniform), 1);
  EXPECT_EQ(pick(logits, 1e-320, 0), 1);  // nearly zero: no overflow
}

TEST(Pick, LargeLogitsDoNotOverflow) {
  const std::array<float, 3> logits = {-3e38F, 3e38F, 0};
  EXPECT_EQ(pick(logits, 0.8, 0.5), 1);
}

TEST(Pick, WhatIsNotUsableIsNeverPicked) {
  // The largest logit is another's, and so are those behind: padding.
  const std::array<float, 6> logits = {3e38F, 0, 0, 0, 9, 9};
  const std::vector<bool> usable = {false, true, false, true};
  EXPECT_EQ(samples::pick(logits, usable, 1, 0), 1);
  EXPECT_EQ(samples::pick(logits, usable, 1, 0.49), 1);
  EXPECT_EQ(samples::pick(logits, usable, 1, 0.51), 3);
  EXPECT_EQ(samples::pick(logits, usable, 1, std::nextafter(1.0, 0.0)), 3);
}

std::string on_a_terminal(const std::vector<std::string>& pieces) {
  TerminalText terminal;
  std::string text;
  for (const std::string& piece : pieces) text += terminal.add(piece);
  return text + terminal.finish();
}

TEST(TerminalText, WhatATerminalMaySee) {
  EXPECT_EQ(on_a_terminal({"a\n\tz"}), "a\n\tz");
  EXPECT_EQ(on_a_terminal({"\x1b[2J"}), "\\x1b[2J");
  EXPECT_EQ(on_a_terminal({"\x7f"}), "\\x7f");
  EXPECT_EQ(on_a_terminal({"\xff"}), "\\xff");
}

TEST(TerminalText, CharactersComeInPieces) {
  EXPECT_EQ(on_a_terminal({"\xc3", "\xa9", "\xf0\x9f", "\x98\x80!"}), "\xc3\xa9\xf0\x9f\x98\x80!");
  EXPECT_EQ(on_a_terminal({"\xc3", "x", "\xe2\x82"}), "\\xc3x\\xe2\\x82");
  EXPECT_EQ(on_a_terminal({"\xc2\x9b"}), "\\xc2\\x9b") << "a control character";
  EXPECT_EQ(on_a_terminal({"\xe0\x80\x80", "\xed\xa0\x80"}), "\\xe0\\x80\\x80\\xed\\xa0\\x80");
}

TEST(UsableTokens, AreThoseWithAText) {
  const auto bytes = byte_tokenizer();
  EXPECT_EQ(usable_tokens(*bytes, 256), std::vector<bool>(256, true));
  EXPECT_EQ(usable_tokens(*bytes, 320).size(), 256U) << "a model may have more";
  EXPECT_EQ(usable_tokens(*bytes, 100).size(), 100U);
}

// Returns a GPT's weights, each of which `change` may change. They start as the initial ones.
ModelWeights gpt_weights(const ModelConfig& config,
                         const std::function<void(const Tensor&, std::span<float>)>& change) {
  ModelWeights weights(gpt_family, config, DataType::f32);
  for (const Tensor& tensor : weights.graph().tensors) {
    if (tensor.kind != TensorKind::parameter) continue;
    const std::span<std::byte> value = weights.value(tensor.name);
    initialize(tensor, 1, value);
    change(tensor, {reinterpret_cast<float*>(value.data()), value.size() / sizeof(float)});
  }
  return weights;
}
void make_zero(const Tensor&, std::span<float> value) { std::fill(value.begin(), value.end(), 0.0F); }

// Generates with the initial parameters of `seed`, each matrix scaled up so that context matters.
std::string generated(std::uint64_t seed, std::string_view prompt, std::uint64_t bytes) {
  const ModelConfig config = {
      .layers = 2, .width = 16, .heads = 2, .sequence = 8, .batch = 4, .dropout = 0.5};
  const ModelWeights weights = gpt_weights(config, [](const Tensor& tensor, std::span<float> value) {
    for (float& number : value) number *= tensor.shape.size() > 1 ? 20.0F : 1.0F;
  });
  std::string text;
  generate(weights, *byte_tokenizer(), prompt, {.tokens = bytes, .temperature = 0.8, .seed = seed},
           [&](std::string_view more) {
             text += more;
             return true;
           });
  return text;
}

TEST(Generate, IsAFunctionOfSeedAndPrompt) {
  const std::string text = generated(1, "\n", 30);
  EXPECT_EQ(text.size(), 30U);
  EXPECT_EQ(text, generated(1, "\n", 30));
  EXPECT_NE(text, generated(2, "\n", 30));
  EXPECT_NE(text, generated(1, "a", 30));
  EXPECT_EQ(text.substr(0, 10), generated(1, "\n", 10));
}

TEST(Generate, SeesTheLastSequenceOfAPrompt) {
  EXPECT_EQ(generated(1, "xxxx12345678", 20), generated(1, "12345678", 20));
  EXPECT_NE(generated(1, "xxxx12345678", 20), generated(1, "xxxx12345679", 20));
}

TEST(Generate, EveryByteIsANewDraw) {
  // With all parameters zero every byte is as likely as any other, whatever stands before it.
  const ModelConfig config = {.layers = 1, .width = 8, .heads = 1, .sequence = 4};
  const ModelWeights zeros = gpt_weights(config, make_zero);
  std::set<unsigned char> seen;
  int count = 0;
  generate(zeros, *byte_tokenizer(), "x", {.tokens = 1000}, [&](std::string_view text) {
    seen.insert(static_cast<unsigned char>(text.front()));
    return ++count < 256;
  });
  EXPECT_EQ(count, 256);  // and it stops when told
  // 256 draws of 256 values: 162 distinct ones are expected, with a deviation of 5.
  EXPECT_GT(seen.size(), 130U);
  EXPECT_LT(seen.size(), 190U);
}

// Padding's embeddings give it the largest logits there could be.
TEST(Generate, NeverPicksPadding) {
  const ModelConfig config = {
      .layers = 1, .width = 8, .heads = 1, .vocabulary = 256, .sequence = 4, .padded_vocabulary = 320};
  const ModelWeights weights = gpt_weights(config, [](const Tensor& tensor, std::span<float> value) {
    make_zero(tensor, value);
    if (tensor.name == "wte.weight") std::fill(value.begin() + std::ptrdiff_t{256} * 8, value.end(), 1e3F);
    if (tensor.name == "ln_f.bias") std::fill(value.begin(), value.end(), 1.0F);
  });
  std::set<std::string> seen;
  generate(weights, *byte_tokenizer(), "x", {.tokens = 300}, [&](std::string_view text) {
    seen.emplace(text);
    return true;
  });
  EXPECT_GT(seen.size(), 100U);
}

TEST(Generate, WritesTextThroughTheTokenizer) {
  const BytePairVocabulary learned = train_byte_pairs("the cat the cat the cat the hat", 262);
  const auto tokenizer = byte_pair_tokenizer(learned);
  const ModelConfig config = {.layers = 1,
                              .width = 8,
                              .heads = 1,
                              .vocabulary = tokenizer->vocabulary_size(),
                              .sequence = 4,
                              .padded_vocabulary = 320};
  const ModelWeights zeros = gpt_weights(config, make_zero);
  bool longer = false;
  generate(zeros, *tokenizer, "the", {.tokens = 400}, [&](std::string_view text) {
    longer = longer || text.size() > 1;
    return true;
  });
  EXPECT_TRUE(longer) << "tokens of several bytes";
}

}  // namespace
}  // namespace stowage::samples
