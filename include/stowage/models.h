// GPT and BERT as graphs.
//
// Both take tokens and targets of [batch * sequence], a sample's tokens adjacent, and end in the mean cross
// entropy of the targets that are not negative, its head tied to the embedding. Weights of linear ops are
// [in, out]. Building one needs no device; it throws InvalidInput that names the field that does not fit
// (width not divisible by heads, …).
//
// `micro_batches` splits the batch into equal parts whose gradients are summed (in the work type, from the
// first to the last), so that only one part's activations need be there at a time; who feeds the model sees
// nothing of it. The loss is the mean over the targets of the whole batch, and the gradients are its, up to
// rounding. Dropout drops what it drops in the batch as a whole, where the elements that one of its ops
// draws for (samples * sequence * width; in attention samples * heads * sequence^2) are a multiple of 4 in
// each part; otherwise it draws others.
#pragma once

#include <cstdint>

#include "stowage/graph_builder.h"

namespace stowage {

// Radford et al., "Language Models are Unsupervised Multitask Learners": pre-norm, GELU (tanh), learned
// positions.
struct GptConfig {
  std::int64_t layers = 6;
  std::int64_t width = 384;
  std::int64_t heads = 6;
  std::int64_t vocabulary = 256;
  std::int64_t sequence = 256;
  std::int64_t batch = 8;
  std::int64_t micro_batches = 1;  // divides the batch
  double dropout = 0;
  // Tokens whose logits exist at once (nn::linear_cross_entropy). 0: all, as the tensor `logits`.
  std::int64_t head_tokens = 2048;
};

struct Gpt {
  Value tokens;   // i32 [batch * sequence]
  Value targets;  // i32 [batch * sequence], negative: ignored
  Value logits;   // [batch * sequence, vocabulary]; empty unless head_tokens is 0 and the batch is not split
  Value loss;     // f64 scalar
};

Gpt gpt(GraphBuilder& builder, const GptConfig& config);

// Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", section 3: bidirectional,
// post-norm, GELU (erf), learned positions, masked tokens to find (targets are negative where nothing is
// masked). Without segments, the pooler and the head's own transform.
struct BertConfig {
  std::int64_t layers = 12;
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t vocabulary = 30528;  // the paper's 30522, padded to a multiple of 32
  std::int64_t sequence = 512;
  std::int64_t batch = 8;
  std::int64_t micro_batches = 1;  // divides the batch
  double dropout = 0;
  std::int64_t head_tokens = 2048;  // whose logits exist at once (nn::linear_cross_entropy); 0: all
};

struct Bert {
  Value tokens;   // i32 [batch * sequence]
  Value targets;  // i32 [batch * sequence], negative: ignored
  Value loss;     // f64 scalar
};

Bert bert(GraphBuilder& builder, const BertConfig& config);

}  // namespace stowage
