// Families of models as graphs: GPT-2, BERT, and Llama with its relatives.
//
// Every model takes tokens and targets of [batch * sequence], a sample's tokens adjacent, and ends in the
// mean cross entropy of the targets that are not negative. Building a model needs no device; it throws
// InvalidInput that names the field that does not fit (width not divisible by heads, …).
//
// `micro_batches` splits the batch into equal parts whose gradients are summed (in the work type), so that
// only one part's activations need be there at a time; the inputs stay those of the whole batch. The loss is
// the mean over the targets of the whole batch, and the gradients are that loss's up to rounding, because the
// order of sums differs. Dropout drops the same elements of the batch, however it is split.
//
// `gradient_groups` (a power of two that divides micro_batches) fixes the order of these sums: within a group
// from the first micro-batch to the last, then over the groups in a tree of pairs (tree_sum.h). Groups change
// the bits; one group is the plain sum.
//
// `ranks` devices can share a batch, and `ranks` divides gradient_groups. The graph of `rank` has the config
// and the inputs of the whole batch: all tokens and all targets. It computes the rank-th of equal,
// consecutive parts of the samples, in micro_batches / ranks parts of its own. Its loss and gradients are the
// rank's part of the whole batch's sums. Added over the ranks in the tree of `ranks` groups, the losses, and
// the gradients of each use of a parameter (GraphBuilder::use_gradients_of), have the bits of the graph of
// all samples.
//
// `padded_vocabulary` gives the embedding, and a head of its own, rows that are no tokens, so that products
// have sizes that hardware likes. These rows are in no softmax, their gradients are zero, and a file of the
// model leaves them out. Padding changes loss and gradients by no more than rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "stowage/graph_builder.h"
#include "stowage/nn.h"

namespace stowage {

// Default number of tokens whose logits the head computes at once (a chunk): a power of two from 2,048 to
// 8,192. Every chunk reads and writes the gradient of the head's weight once, so chunks grow with the width
// until that traffic is small beside that of the logits (16 bytes of logits for each feature). They grow to
// at most a quarter of `tokens`, those of a micro-batch: the chunk's logits are memory that every plan needs.
// The order of sums depends on the chunk, and so do bits.
std::int64_t default_head_tokens(DataType type, std::int64_t width, std::int64_t tokens);

// The sizes of a model of any family, and how a step takes its batch.
struct ModelConfig {
  std::int64_t layers = 6;
  std::int64_t width = 384;
  std::int64_t heads = 6;
  std::int64_t vocabulary = 256;
  std::int64_t sequence = 256;       // tokens of a sample
  std::int64_t batch = 8;            // samples
  std::int64_t micro_batches = 1;    // divides the batch
  std::int64_t gradient_groups = 1;  // a power of two that divides micro_batches
  // The number of this device among the `ranks` devices that share the batch; `ranks` divides
  // gradient_groups.
  std::int64_t rank = 0, ranks = 1;
  // Rate wherever the family drops elements: Llama and its relatives on attention's probabilities alone.
  double dropout = 0;
  // Tokens whose logits exist at once, where the head is whole (nn::linear_cross_entropy; in blocks those of
  // a micro-batch do). Not set: default_head_tokens. 0: all, as the tensor `logits`.
  std::optional<std::int64_t> head_tokens{};
  std::int64_t padded_vocabulary = 0;         // at least the vocabulary; 0: equal to it
  std::optional<double> embedding_dropout{};  // rate behind the embedding, instead of `dropout` (GPT-2)
  std::optional<double> attention_dropout{};  // rate on the attention probabilities, likewise
  std::optional<double> residual_dropout{};   // rate on the result of each branch, likewise (GPT-2)
  double epsilon = 1e-5;                      // epsilon of the norms
  // Bits of the codes in which backward gets large activations (coded_activations.h); not set: they are
  // exact. The gradients depend on it, and the loss of one step does not.
  std::optional<CodeBits> code_activations{};
  // Llama and its relatives alone; other families pass these over:
  std::int64_t key_heads = 0;   // heads of keys, and of values, which divide `heads`; 0: as many
  std::int64_t head_width = 0;  // even; 0: width / heads
  std::int64_t inner = 0;       // width within the MLP; 0: 4 * width
  bool tied = true;             // the head's weight is the embedding's
  bool attention_bias = false;  // queries, keys and values have a bias
  bool head_norms = false;      // each query and key head is normalised before it is turned
  double rotary_theta = 10000;
  std::optional<nn::RotaryScaling> rotary_scaling{};
  std::vector<std::int64_t> windows{};  // nn::AttentionOptions::window of each layer; empty: 0 everywhere
  // Rows of a block of the embedding and of the head (nn::head_statistics), each a parameter of its own, so
  // that a plan needs one block at a time; 0: both are whole. Tables of no more rows, and those of a graph
  // with head_tokens 0, are whole too. The order of sums depends on it, and so do bits.
  std::int64_t table_rows = 0;
  bool packed = false;  // several documents share a sample: there is an input BuiltModel::begins
  // BERT alone:
  bool pretraining = false;     // the whole model of the paper's section 3
  bool padding_at_end = false;  // nn::AttentionOptions::padding_at_end, for the mask BuiltModel::seen
  // The share of each sample's tokens, in (0, 1], that the MLP of a layer works on: ceil(share * sequence) of
  // them (a product within 2^-40 of a whole number is that number), those that received the most attention in
  // the layer (nn::top_tokens); the others pass by on the residual. Evaluation keeps as many.
  double keep_tokens = 1;

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Returns the head_tokens of `config` in a builder of work type `type`.
std::int64_t head_tokens(const ModelConfig& config, DataType type);

// An input of a model: whole numbers from `least` on, below `values`.
struct ModelInput {
  Value value;
  std::int32_t values = 1;
  std::int32_t least = 0;
};

struct BuiltModel {
  Value tokens;   // i32 [batch * sequence]
  Value targets;  // i32 [batch * sequence], negative: ignored
  Value loss;     // f64 scalar: the sum of all losses that the model has
  // [batch * sequence, padded vocabulary]; empty unless head_tokens is 0 and the batch not split
  Value logits;
  // i32 [batch * sequence], nn::AttentionOptions::begins; empty unless the config is `packed`
  Value begins;
  // These four are empty without `pretraining`.
  Value token_types;    // i32 [batch * sequence], 0 or 1: the segment
  Value seen;           // i32 [batch * sequence], 0 at padding; no sample may be all padding
  Value next_sentence;  // i32 [batch]: 0 where the second segment follows, 1 where not, negative: ignored
  Value next_sentence_logits;      // [batch, 2]; empty where the batch is split
  std::vector<ModelInput> inputs;  // all inputs; tokens and targets come first
};

// Radford et al., "Language Models are Unsupervised Multitask Learners": pre-norm, GELU (tanh), learned
// positions. Computes what Hugging Face's GPT2LMHeadModel does; parameters have its names without
// "transformer.", and its shapes, but for padding; weights of linear ops are [in, out], and the head is tied
// to the embedding. Starts as the paper says: N(0, 0.02), biases 0, gains 1, the branches' last projections
// smaller by sqrt(2 layers).
BuiltModel gpt(GraphBuilder& builder, const ModelConfig& config);

// Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", section 3: bidirectional,
// post-norm, GELU (erf), learned positions, masked tokens to find (targets are negative where nothing is
// masked). Weights of linear ops are [in, out], and the head is tied to the embedding.
//
// `pretraining` builds the whole model of that section: embeddings of token types, padding that attention
// does not see, the head's own transform and bias, and the pooler with the next-sentence task, whose mean
// loss is added. It computes what Hugging Face's BertForPreTraining does, except that padding's row of the
// embedding learns like any other from tokens that are seen. Otherwise the model is the encoder and a head
// that is the embedding alone.
//
// Parameters, with Hugging Face's if they differ ([out, in] weights are transposed everywhere):
//   bert.embeddings.{word,position,token_type}_embeddings.weight
//   bert.embeddings.LayerNorm.{weight,bias}
//   bert.encoder.layer.N.attention.self.query_key_value.{weight [C,3C],bias [3C]}
//                              = …self.query, …self.key, …self.value side by side
//   bert.encoder.layer.N.attention.output.{dense,LayerNorm}.{weight,bias}
//   bert.encoder.layer.N.intermediate.dense.{weight,bias}
//   bert.encoder.layer.N.output.{dense,LayerNorm}.{weight,bias}
//   bert.pooler.dense.{weight,bias}                                       (pretraining)
//   cls.predictions.transform.{dense,LayerNorm}.{weight,bias}             (pretraining)
//   cls.predictions.bias [V]   = cls.predictions.decoder.bias too         (pretraining)
//   cls.seq_relationship.{weight [C,2],bias}                              (pretraining)
// cls.predictions.decoder.weight is the word embedding. Weights start from N(0, 0.02), biases at 0, gains
// at 1. `keep_tokens` changes no parameter.
BuiltModel bert(GraphBuilder& builder, const ModelConfig& config);

// Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", with the grouped queries of its
// successors: pre-norm, RMS norms, rotary positions, SwiGLU. Computes what Hugging Face's LlamaForCausalLM,
// MistralForCausalLM, Qwen2ForCausalLM (with `attention_bias`) and Qwen3ForCausalLM (with `head_norms`) do,
// except that a norm rounds once. With `packed`, no token sees another document, and positions begin again in
// each.
//
// Parameters, with C the width and D that of a head; all weights of linear ops are [out, in] here:
//   embed_tokens.weight [V,C], norm.weight [C], lm_head.weight [V,C] (unless `tied`); in blocks
//                              {embed_tokens,lm_head}.weight.rows.F, F their first row
//   layers.N.{input,post_attention}_layernorm.weight [C]
//   layers.N.self_attn.qkv_proj.{weight [(heads + 2 key_heads) D, C],bias}
//                              = …q_proj, …k_proj, …v_proj one below the other; the bias with
//                              `attention_bias`
//   layers.N.self_attn.{q_norm,k_norm}.weight [D]                         (head_norms)
//   layers.N.self_attn.o_proj.weight [C, heads D]
//   layers.N.mlp.{gate,up}_proj.weight [inner,C], layers.N.mlp.down_proj.weight [C,inner]
// Hugging Face's names begin with "model.", but for lm_head. Weights start from N(0, 0.02), biases at 0,
// gains at 1.
BuiltModel llama(GraphBuilder& builder, const ModelConfig& config);

// A family of models. Each family has one constant record, which model_families() lists.
struct ModelFamily {
  std::string_view name;   // "gpt": in a plan's JSON, in checkpoints and before messages
  std::string_view title;  // "GPT-2": for people
  bool generates;          // predicts the next token, so that it can write text
  bool learned_positions;  // a table has a row for each position: no sample may be longer
  ModelConfig defaults;    // the sizes that a question without others is about
  BuiltModel (*build)(GraphBuilder& builder, const ModelConfig& config);
};

extern const ModelFamily gpt_family, bert_family, llama_family, mistral_family, qwen2_family, qwen3_family;

std::span<const ModelFamily* const> model_families();
// Returns null if no family has the name.
const ModelFamily* find_model_family(std::string_view name);

}  // namespace stowage
