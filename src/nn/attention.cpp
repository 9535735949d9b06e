#include <algorithm>

#include "src/nn/operands.h"
#include "stowage/nn.h"

namespace stowage::nn {
namespace {

std::int64_t key_heads_of(const AttentionOptions& options) {
  return options.key_heads == 0 ? options.heads : options.key_heads;
}

// Requires that `columns` of queries, keys and values divide into heads.
void require_heads(const std::string& name, std::int64_t columns, const AttentionOptions& options) {
  const std::int64_t heads = options.heads, key_heads = key_heads_of(options);
  if (key_heads == heads) {
    require(columns % 3 == 0, name, "queries, keys and values differ in width; give [tokens, 3 * width]");
    require(heads > 0 && columns / 3 % heads == 0, name,
            "the width is not divisible by the heads; change one of them");
    return;
  }
  require(heads > 0 && key_heads > 0 && heads % key_heads == 0, name,
          "the heads are no multiple of the key heads; change one of them");
  require(columns % (heads + 2 * key_heads) == 0, name,
          "queries, keys and values do not divide into heads; give [tokens, (heads + 2 * key heads) * head "
          "width]");
}

// Requires that a window or documents come with what they need.
void require_mask(const GraphBuilder& builder, const std::string& name, std::int64_t tokens,
                  const AttentionOptions& options) {
  const std::int64_t all_tokens = tokens * builder.micro_batch().parts();
  require(options.window >= 0, name, "the window is negative; give the number of keys, or 0 for all");
  require((options.window == 0 && !options.begins) || options.causal, name,
          "a window and documents need a causal mask; set causal");
  require((options.window == 0 && !options.begins) || !options.seen, name,
          "a window and documents take no padding; make padding at the end a document of its own");
  if (options.seen) require_operand(builder, name, "padding", options.seen, {all_tokens}, DataType::i32);
  if (options.begins)
    require_operand(builder, name, "documents' begins", options.begins, {all_tokens}, DataType::i32);
}

void require_fit(const GraphBuilder& builder, const std::string& name, Value qkv,
                 const AttentionOptions& options) {
  require_operand(builder, name, "queries, keys and values", qkv, {any, any}, builder.work_type());
  const std::vector<std::int64_t>& shape = builder.tensor(qkv).shape;
  require_heads(name, shape[1], options);
  require(options.sequence > 0 && shape[0] % options.sequence == 0, name,
          "the tokens are no whole number of sequences; pad them");
  require(options.dropout >= 0 && options.dropout < 1, name,
          "the dropout probability is outside [0, 1); choose one inside");
  require_mask(builder, name, shape[0], options);
}

// Keys per query, on average: all, those up to the query itself, or those of them in its window. Where
// documents begin is not known.
double keys_per_query(const AttentionOptions& options) {
  const auto length = static_cast<double>(options.sequence);
  if (!options.causal) return length;
  if (options.window == 0 || options.window >= options.sequence) return (length + 1) / 2;
  const auto window = static_cast<double>(options.window);
  return window - window * (window - 1) / 2 / length;
}

Attributes attributes_of(const AttentionOptions& options) {
  Attributes attributes{{"heads", options.heads},
                        {"sequence", options.sequence},
                        {"causal", std::int64_t{options.causal}},
                        {"dropout", options.dropout}};
  if (options.padding_at_end) attributes["padding_at_end"] = std::int64_t{1};
  if (key_heads_of(options) != options.heads) attributes["key_heads"] = options.key_heads;
  if (options.window > 0 && options.window < options.sequence) attributes["window"] = options.window;
  if (options.begins) attributes["documents"] = std::int64_t{1};
  return attributes;
}

// Workspace of a fused kernel for bf16 or f16. cuDNN's deterministic backward takes about 2 S^2 bytes for
// each query head that it works on at once (9.19, on Hopper), and for grouped queries the head's gradients of
// keys and values, before they are added. Heads for 512 tiles of 128 queries fill any card. Slices of whole
// groups of query heads run one after another (attention_slices.h); if no group fits, our own kernels run.
// Other work types, dropout, documents, and padding that may stand anywhere have no fused kernel and need no
// workspace.
Bytes fused_backward_bytes(const GraphBuilder& builder, std::int64_t samples, std::int64_t head_width,
                           const AttentionOptions& options) {
  const bool fused = options.dropout == 0 && !options.begins && (!options.seen || options.padding_at_end);
  if (size_of(builder.work_type()) != 2 || !fused) return 0;
  constexpr std::int64_t tile = 128, enough_tiles = 512;
  constexpr Bytes padding = 1 << 20;
  const std::int64_t tiles = (options.sequence + tile - 1) / tile;
  const std::int64_t group = options.heads / key_heads_of(options);
  const std::int64_t heads =
      std::min(samples * options.heads, (enough_tiles + tiles - 1) / tiles) / group * group;
  if (heads == 0) return 0;
  const Bytes length = static_cast<Bytes>(tiles * tile);
  const Bytes gradients = group > 1 ? 2 * length * static_cast<Bytes>(head_width) * 2 : 0;
  return static_cast<Bytes>(heads) * (2 * length * length + 4 * length + gradients) + padding;
}

// Floating-point operations of one product of queries and keys (or of probabilities and values), and of the
// softmax.
struct Work {
  double product, softmax;

  Work(const GraphBuilder& builder, Value y, Value log_sum_exp, const AttentionOptions& options) {
    const double keys = keys_per_query(options);
    product = 2 * elements(builder, y) * keys;
    softmax = 5 * elements(builder, log_sum_exp) * keys;
  }
};

struct Attended {
  Value y, log_sum_exp;
  Attributes attributes;
};

Attended attend(GraphBuilder& builder, const std::string& name, Value qkv, const AttentionOptions& options) {
  require_fit(builder, name, qkv, options);
  std::int64_t tokens = builder.tensor(qkv).shape[0];
  std::int64_t width =
      builder.tensor(qkv).shape[1] / (options.heads + 2 * key_heads_of(options)) * options.heads;
  Value y = builder.activation(name, {tokens, width});
  Value log_sum_exp =
      builder.activation(name + ".log_sum_exp", {tokens / options.sequence, options.heads, options.sequence},
                         builder.sum_type());
  std::string full = builder.tensor(y).name;
  Attributes attributes = attributes_of(options);
  builder.add_random_stream(attributes, name, tokens * options.heads * options.sequence);
  const Value optional = options.begins ? options.begins : options.seen;
  if (optional) attributes.merge(token_slice(builder, tokens));

  const Work work(builder, y, log_sum_exp, options);
  auto backward = [=](GraphBuilder& b, const std::vector<Value>& gradients) {
    Value dqkv = b.gradient_like(qkv);
    std::vector<Value> writes{dqkv};
    const Bytes scratch = fused_backward_bytes(b, tokens / options.sequence, width / options.heads, options);
    if (scratch > 0) writes.push_back(b.workspace(full + ".backward.workspace", scratch));
    std::vector<Value> reads{qkv, y, log_sum_exp, gradients[0]};
    if (optional) reads.push_back(optional);
    // Backward computes the probabilities once more, then four products.
    b.op({full + ".backward",
          "attention_backward",
          attributes,
          std::move(reads),
          std::move(writes),
          {},
          {5 * work.product + 2 * work.softmax, 0}});
    b.add_gradient(qkv, dqkv, true);
  };
  std::vector<Value> reads{qkv};
  if (optional) reads.push_back(optional);
  builder.op({name,
              "attention",
              attributes,
              std::move(reads),
              {y, log_sum_exp},
              {},
              {2 * work.product + work.softmax, 0}},
             backward);
  return {y, log_sum_exp, attributes};
}

}  // namespace

Value attention(GraphBuilder& builder, std::string name, Value qkv, const AttentionOptions& options) {
  return attend(builder, name, qkv, options).y;
}

// The op has no backward rule, so the builder refuses a loss that depends on the scores.
ScoredAttention scored_attention(GraphBuilder& builder, std::string name, Value qkv,
                                 const AttentionOptions& options) {
  require(options.window == 0 && !options.begins, name,
          "scores take neither a window nor documents; leave them out");
  const Attended attended = attend(builder, name, qkv, options);
  const Value scores =
      builder.activation(name + ".scores", {builder.tensor(qkv).shape[0]}, builder.sum_type());
  const Value by_head =
      builder.workspace(name + ".scores.by_head", builder.tensor(attended.log_sum_exp).bytes());
  std::vector<Value> reads{qkv, attended.log_sum_exp};
  if (options.seen) reads.push_back(options.seen);
  const Work work(builder, attended.y, attended.log_sum_exp, options);
  builder.op({name + ".scores",
              "attention_scores",
              attended.attributes,
              std::move(reads),
              {scores, by_head},
              {},
              {work.product + work.softmax, 0}});
  return {attended.y, scores};
}

}  // namespace stowage::nn
