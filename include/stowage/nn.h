// Transformer ops as graph nodes, forward and backward of each.
//
// Activations are [tokens, features] with tokens = batch * sequence, a sample's tokens adjacent; where the
// batch is split (GraphBuilder::split_batch), they are a micro-batch's. Tokens and targets are always the
// whole batch's: embedding and the losses take their micro-batch's part of them.
// Every function appends ops to the builder, registers the backward rule, and throws InvalidInput
// with the op's name on a shape that does not fit.
#pragma once

#include <optional>
#include <string>

#include "stowage/graph_builder.h"

namespace stowage::nn {

// Hendrycks and Gimpel, "Gaussian Error Linear Units (GELUs)": exact (erf), or its approximation by tanh.
enum class Gelu : std::uint8_t { tanh, erf };

struct AttentionOptions {
  std::int64_t heads = 1;
  std::int64_t sequence = 1;
  bool causal = true;
  double dropout = 0;  // rate on the attention probabilities
  // i32 [batch * sequence], 0 at padding: keys there get no weight, as with a mask of -infinity on the
  // scores. Every sample must have a position that is seen. Empty: all positions are seen.
  Value seen{};
  // The caller's promise that in each sample all padding is at the end: then fused kernels that take a number
  // of keys compute it. The CPU's kernels throw InvalidInput if it does not hold.
  bool padding_at_end = false;
  // Grouped queries: heads of keys, and of values; 0: as many as `heads`, which must be a multiple. Query
  // head h reads key head h / (heads / key_heads).
  std::int64_t key_heads = 0;
  // Of causal attention without `seen`: a query sees its own key and the window - 1 keys before it. 0: all.
  std::int64_t window = 0;
  // Packed documents, of causal attention without `seen`: i32 [batch * sequence], the index within the sample
  // of the first token of each token's document. A query sees no key of another document. Within a sample the
  // values never fall, and none is behind its token; the CPU's kernels throw InvalidInput if that does not
  // hold. Empty: a sample is one document.
  Value begins{};
};

struct LinearCrossEntropyOptions {
  bool transposed = false;      // the weight is transposed, as in linear
  std::int64_t chunk = 0;       // tokens whose logits exist at once; 0: all
  std::int64_t vocabulary = 0;  // number of columns that count, as in cross_entropy
  Value bias{};                 // [columns], or empty; one op writes its gradient and the others
};

// Llama 3's scaling of rotary angles ("llama3" in transformers): pairs that turn fewer than
// `low_frequency_factor` times within `original_positions` turn slower by `factor`, pairs that turn more than
// `high_frequency_factor` times are left alone, and the change between them is gradual.
struct RotaryScaling {
  double factor = 8;  // at least 1
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  std::int64_t original_positions = 8192;
  friend bool operator==(const RotaryScaling&, const RotaryScaling&) = default;
};

struct RotaryOptions {
  std::int64_t heads = 1;      // of queries
  std::int64_t key_heads = 1;  // of keys, and as many of values
  std::int64_t sequence = 1;
  double theta = 10000;  // at least 1
  std::optional<RotaryScaling> scaling{};
  // [width of a head] each, both or none: query and key heads are RMS-normalised and multiplied by their gain
  // before they are turned.
  Value query_gain{};
  Value key_gain{};
  double epsilon = 1e-6;  // of the norms
  // i32 [batch * sequence]: the index within the sample of the first token of each token's document, at which
  // positions start again. Empty: each sample is one document.
  Value begins{};
};

// Some rows of a table that is kept in blocks: rows [first, first + R) of one with a row for each of `tokens`
// tokens. Rows behind those of tokens are padding.
struct TableBlock {
  Value rows{};  // [R,C]
  std::int64_t first = 0;
  std::int64_t tokens = 0;
};

// table[V,C], positions[S,C] or empty. -> [N,C]
Value embedding(GraphBuilder& builder, std::string name, Value tokens, Value table, Value positions,
                std::int64_t sequence);
// The embedding of a table in blocks, block by block: the rows of tokens that the block has; the others are
// those of `before`, this function's result for other blocks, or 0 where that is empty. -> [N,C]
Value embedding_rows(GraphBuilder& builder, std::string name, Value tokens, const TableBlock& block,
                     Value before);
// gain[C], bias[C]: Ba, Kiros, Hinton, "Layer Normalization".
Value layer_norm(GraphBuilder& builder, std::string name, Value x, Value gain, Value bias,
                 double epsilon = 1e-5);
// gain[C]: Zhang, Sennrich, "Root Mean Square Layer Normalization".
Value rms_norm(GraphBuilder& builder, std::string name, Value x, Value gain, double epsilon = 1e-5);
// weight [in,out], or [out,in] with `transposed`; bias[out] or empty.
Value linear(GraphBuilder& builder, std::string name, Value x, Value weight, Value bias,
             bool transposed = false);
// linear and gelu in one op, so that the product's epilogue can do it. The bias is not optional.
Value linear_gelu(GraphBuilder& builder, std::string name, Value x, Value weight, Value bias, Gelu form,
                  bool transposed = false);
Value gelu(GraphBuilder& builder, std::string name, Value x, Gelu form);
// gate[N,I], up[N,I] -> gate * sigmoid(gate) * up: Shazeer, "GLU Variants Improve Transformer".
Value swiglu(GraphBuilder& builder, std::string name, Value gate, Value up);
Value tanh(GraphBuilder& builder, std::string name, Value x);
// Takes each sample's first row: [N,C] -> [N / sequence, C]
Value first_token(GraphBuilder& builder, std::string name, Value x, std::int64_t sequence);
// qkv [N, (heads + 2 key_heads) D]: query, key and value heads side by side, of even width D <= 512. Turns
// elements i and i + D / 2 of each query and key head by position * theta^(-2 i / D): Su et al., "RoFormer:
// Enhanced Transformer with Rotary Position Embedding". -> the shape of qkv
Value rotary(GraphBuilder& builder, std::string name, Value qkv, const RotaryOptions& options);
// qkv [N,(H+2K)D]: H = heads queries, K = key_heads keys and K values side by side, each D wide. -> [N,HD]
// Softmax in one pass with its log-sum-exp saved (Dao et al., "FlashAttention"), so that probabilities are
// never stored.
Value attention(GraphBuilder& builder, std::string name, Value qkv, const AttentionOptions& options);
// Returns attention's result and, for each token, the attention that it received: the sum over heads and
// queries of its probability as a key, before dropout. Queries at padding do not count, and padding's scores
// are 0. No gradient goes through the scores. Takes neither a window nor documents. `scores`: f32 (f64 for
// f64) [N]
struct ScoredAttention {
  Value y, scores;
};
ScoredAttention scored_attention(GraphBuilder& builder, std::string name, Value qkv,
                                 const AttentionOptions& options);
// Chooses the `keep` tokens of each sample with the highest scores; of equal scores the first. Tokens where
// `seen`, i32 [batch * sequence] or empty, is 0 stand behind all others. -> i32 [N / sequence * keep]: their
// rows within the micro-batch, in rising order
Value top_tokens(GraphBuilder& builder, std::string name, Value scores, Value seen, std::int64_t sequence,
                 std::int64_t keep);
// x[N,C], rows[M] of top_tokens. -> [M,C]: these rows of x
Value take_rows(GraphBuilder& builder, std::string name, Value x, Value rows);
// x[N,C], y[M,C]. -> x, with row i of y added to row rows[i]
Value add_rows(GraphBuilder& builder, std::string name, Value x, Value y, Value rows);
// Adds no op if the probability is 0.
Value dropout(GraphBuilder& builder, std::string name, Value x, double probability);
Value add(GraphBuilder& builder, std::string name, Value a, Value b);
// a + dropout(b), in one op.
Value add_dropout(GraphBuilder& builder, std::string name, Value a, Value b, double probability);
// Mean over the targets >= 0. -> f64 scalar. The result of a micro-batch is its part of the mean over the
// whole batch's targets, so that all parts add up to the mean (GraphBuilder::sum_loss). `vocabulary`: columns
// that count; those behind are padding, in no sum, with gradient 0. 0: all count.
Value cross_entropy(GraphBuilder& builder, std::string name, Value logits, Value targets,
                    std::int64_t vocabulary = 0);

// cross_entropy of linear's result, and the gradients of all inputs with it, for the logits of `chunk` tokens
// at a time: they are never stored as a whole, and never computed twice. Must be the last op of its unit but
// add_loss, in the last half-block. -> f64 scalar, the loss
Value linear_cross_entropy(GraphBuilder& builder, std::string name, Value x, Value weight, Value targets,
                           const LinearCrossEntropyOptions& options = {});

// The same loss for a head whose weight is in blocks of rows, block by block, so that neither all of the
// weight nor a token's logits exist at once. head_statistics folds the logits that a block gives into each
// token's largest logit, sum of exponentials and logit of its target; `before`: the result for other blocks,
// or empty. Its backward makes the logits again. The units of the blocks may differ. -> f32 (f64 for f64)
// [3,N]
Value head_statistics(GraphBuilder& builder, std::string name, Value x, const TableBlock& block,
                      Value targets, Value before);
// The mean, of the statistics that all blocks have given; as in cross_entropy. -> f64 scalar, the loss
Value head_loss(GraphBuilder& builder, std::string name, Value statistics, Value targets);

}  // namespace stowage::nn
