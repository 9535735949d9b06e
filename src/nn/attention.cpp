#include <algorithm>

#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {
namespace {

void require_fit(const GraphBuilder& builder, const std::string& name, Value qkv,
                 const AttentionOptions& options) {
  require_operand(builder, name, "queries, keys and values", qkv, {any, any}, builder.work_type());
  const std::vector<std::int64_t>& shape = builder.tensor(qkv).shape;
  require(shape[1] % 3 == 0, name, "queries, keys and values differ in width; give [tokens, 3 * width]");
  require(options.heads > 0 && shape[1] / 3 % options.heads == 0, name,
          "the width is not divisible by the heads; change one of them");
  require(options.sequence > 0 && shape[0] % options.sequence == 0, name,
          "the tokens are no whole number of sequences; pad them");
  require(options.dropout >= 0 && options.dropout < 1, name,
          "the dropout probability is outside [0, 1); choose one inside");
  if (options.seen) {
    require_operand(builder, name, "padding", options.seen, {shape[0] * builder.micro_batch().parts()},
                    DataType::i32);
  }
}

// Workspace of a fused kernel for bf16 or f16. cuDNN's deterministic backward takes about 2 S^2 bytes for
// each head that it works on at once (9.19, on Hopper), and heads for 512 tiles of 128 queries fill any card.
// Other work types, dropout, and padding that may stand anywhere have no fused kernel and need no workspace.
Bytes fused_backward_bytes(const GraphBuilder& builder, std::int64_t samples,
                           const AttentionOptions& options) {
  const bool fused = options.dropout == 0 && (!options.seen || options.padding_at_end);
  if (size_of(builder.work_type()) != 2 || !fused) return 0;
  constexpr std::int64_t tile = 128, enough_tiles = 512;
  constexpr Bytes padding = 1 << 20;
  const std::int64_t tiles = (options.sequence + tile - 1) / tile;
  const std::int64_t heads = std::min(samples * options.heads, (enough_tiles + tiles - 1) / tiles);
  const Bytes length = static_cast<Bytes>(tiles * tile);
  return static_cast<Bytes>(heads) * (2 * length * length + 4 * length) + padding;
}

}  // namespace

Value attention(GraphBuilder& builder, std::string name, Value qkv, const AttentionOptions& options) {
  require_fit(builder, name, qkv, options);
  std::int64_t tokens = builder.tensor(qkv).shape[0];
  std::int64_t width = builder.tensor(qkv).shape[1] / 3;
  Value y = builder.activation(name, {tokens, width});
  Value log_sum_exp =
      builder.activation(name + ".log_sum_exp", {tokens / options.sequence, options.heads, options.sequence},
                         builder.sum_type());
  std::string full = builder.tensor(y).name;
  Attributes attributes{{"heads", options.heads},
                        {"sequence", options.sequence},
                        {"causal", std::int64_t{options.causal}},
                        {"dropout", options.dropout}};
  builder.add_random_stream(attributes, name, tokens * options.heads * options.sequence);
  if (options.seen) attributes.merge(token_slice(builder, tokens));
  if (options.padding_at_end) attributes["padding_at_end"] = std::int64_t{1};

  // Keys per query: all, or those up to the query itself.
  auto length = static_cast<double>(options.sequence);
  double keys = options.causal ? (length + 1) / 2 : length;
  double product = 2 * elements(builder, y) * keys;  // queries by keys, or probabilities by values
  double softmax = 5 * elements(builder, log_sum_exp) * keys;
  auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    Value dqkv = b.gradient_like(qkv);
    std::vector<Value> writes{dqkv};
    const Bytes scratch = fused_backward_bytes(b, tokens / options.sequence, options);
    if (scratch > 0) writes.push_back(b.workspace(full + ".backward.workspace", scratch));
    std::vector<Value> reads{qkv, y, log_sum_exp, gradients[0]};
    if (options.seen) reads.push_back(options.seen);
    // Backward computes the probabilities once more, then four products.
    b.op({full + ".backward",
          "attention_backward",
          attributes,
          std::move(reads),
          std::move(writes),
          {},
          {5 * product + 2 * softmax, 0}});
    b.add_gradient(qkv, dqkv, true);
  };
  std::vector<Value> reads{qkv};
  if (options.seen) reads.push_back(options.seen);
  builder.op(
      {name, "attention", attributes, std::move(reads), {y, log_sum_exp}, {}, {2 * product + softmax, 0}},
      backward);
  return y;
}

}  // namespace stowage::nn
