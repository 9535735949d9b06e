// GPT as a graph (Radford et al., "Language Models are Unsupervised Multitask Learners": pre-norm,
// GELU (tanh), learned positions, tied head).
#pragma once

#include <cstdint>

#include "stowage/graph_builder.h"

namespace stowage {

struct GptConfig {
  std::int64_t layers = 6;
  std::int64_t width = 384;
  std::int64_t heads = 6;
  std::int64_t vocabulary = 256;
  std::int64_t sequence = 256;
  std::int64_t batch = 8;
  double dropout = 0;
  // Tokens whose logits exist at once (nn::linear_cross_entropy). 0: all, as the tensor `logits`.
  std::int64_t head_tokens = 2048;
};

struct Gpt {
  Value tokens;   // i32 [batch * sequence]
  Value targets;  // i32 [batch * sequence], negative: ignored
  Value logits;   // [batch * sequence, vocabulary]; empty unless head_tokens is 0
  Value loss;     // f64 scalar
};

// Throws InvalidInput naming the field that does not fit (width not divisible by heads, …).
Gpt gpt(GraphBuilder& builder, const GptConfig& config);

}  // namespace stowage
