#include "samples/generate.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <span>

#include "stowage/evaluate.h"

namespace stowage::samples {
namespace {

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

TEST(Pick, LargeLogitsDoNotOverflow) {
  const std::array<float, 3> logits = {-3e38F, 3e38F, 0};
  EXPECT_EQ(pick(logits, 0.8, 0.5), 1);
}

TEST(Escaped, WhatATerminalMaySee) {
  EXPECT_EQ(escaped('a'), "a");
  EXPECT_EQ(escaped('\n'), "\n");
  EXPECT_EQ(escaped('\t'), "\t");
  EXPECT_EQ(escaped(0x1b), "\\x1b");
  EXPECT_EQ(escaped(0x7f), "\\x7f");
  EXPECT_EQ(escaped(0xff), "\\xff");
}

struct Built {
  Gpt model;
  Graph graph;
};
Built tiny(std::int64_t batch,
           GptConfig config = {.layers = 2, .width = 16, .heads = 2, .sequence = 8, .head_tokens = 0}) {
  config.batch = batch;
  GraphBuilder builder;
  Built built;
  built.model = gpt(builder, config);
  built.graph = builder.finish(built.model.loss, AdamW{});
  return built;
}

TEST(UpTo, KeepsTheForwardPartAndComputesTheSame) {
  const Built whole = tiny(1);
  const SubGraph part = up_to(whole.graph, {whole.model.tokens.id, whole.model.logits.id});
  for (const Op& op : part.graph.ops) {
    EXPECT_EQ(op.phase, Phase::forward);
    EXPECT_NE(op.kernel, "cross_entropy");
  }
  for (const Tensor& tensor : part.graph.tensors) {
    EXPECT_NE(tensor.kind, TensorKind::gradient);
    EXPECT_NE(tensor.kind, TensorKind::optimizer_state);
  }
  // Forward alone, so that the weights stay as they were initialised.
  const SubGraph forward = up_to(whole.graph, {whole.model.loss.id, whole.model.logits.id});
  Evaluator one(part.graph, cpu_launch_table(), 3);
  Evaluator other(forward.graph, cpu_launch_table(), 3);
  one.run(0, 0);
  other.run(0, 0);
  EXPECT_EQ(one.value(part.outputs[1]), other.value(forward.outputs[1]));
  EXPECT_EQ(one.graph().tensor(part.outputs[1]).name, whole.graph.tensor(whole.model.logits.id).name);
}

// Generates with the initial parameters of `seed`, each matrix scaled up so that context matters.
std::string generated(std::uint64_t seed, std::string_view prompt, std::uint64_t bytes) {
  const GptConfig config = {.layers = 2, .width = 16, .heads = 2, .sequence = 8, .batch = 4, .dropout = 0.5};
  const Built built = tiny(1);
  const ReadParameter read = [&](const std::string& name) {
    for (const Tensor& tensor : built.graph.tensors) {
      if (tensor.name != name) continue;
      std::vector<std::byte> value(tensor.bytes());
      initialize(tensor, 1, value);
      std::vector<float> numbers(value.size() / sizeof(float));
      std::memcpy(numbers.data(), value.data(), value.size());
      if (tensor.shape.size() > 1) {
        for (float& number : numbers) number *= 20;
      }
      std::memcpy(value.data(), numbers.data(), value.size());
      return value;
    }
    ADD_FAILURE() << "no parameter " << name;
    return std::vector<std::byte>{};
  };
  std::string text;
  generate(config, read, {.prompt = prompt, .bytes = bytes, .temperature = 0.8, .seed = seed},
           [&](unsigned char c) {
             text.push_back(static_cast<char>(c));
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
  const GptConfig config = {.layers = 1, .width = 8, .heads = 1, .sequence = 4};
  const Built built = tiny(1, config);
  const ReadParameter zeros = [&](const std::string& name) {
    for (const Tensor& tensor : built.graph.tensors) {
      if (tensor.name == name) return std::vector<std::byte>(tensor.bytes());
    }
    return std::vector<std::byte>{};
  };
  std::set<unsigned char> seen;
  int count = 0;
  generate(config, zeros, {.prompt = "x", .bytes = 1000}, [&](unsigned char byte) {
    seen.insert(byte);
    return ++count < 256;
  });
  EXPECT_EQ(count, 256);  // and it stops when told
  // 256 draws of 256 values: 162 distinct ones are expected, with a deviation of 5.
  EXPECT_GT(seen.size(), 130U);
  EXPECT_LT(seen.size(), 190U);
}

}  // namespace
}  // namespace stowage::samples
