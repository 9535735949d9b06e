#include <fmt/format.h>

#include <vector>

#include "src/models/require_valid.h"
#include "stowage/models.h"
#include "stowage/nn.h"

namespace stowage {
namespace {

constexpr double bert_deviation = 0.02;
constexpr std::int64_t segments = 2;

// The value between two half-blocks: the first one's sum, and the norm that the second one begins with.
// Backward reads the sum, and the norm is cheaply replayed from it. If the norm belonged to the first
// half-block, its replay would have to repeat the product before the sum.
struct Trunk {
  Value sum;
  std::string norm, parameter;  // empty: none
  // The rows that the next MLP works on, chosen by the attention before it; empty: all.
  Value rows{};
};

// Builds one op after the other. Parameters have the names of models.h; ops have shorter names.
struct Encoder {
  GraphBuilder& builder;
  const ModelConfig& config;

  Value weight(const std::string& parameter, std::int64_t in, std::int64_t out) const {
    return builder.parameter(parameter + ".weight", {in, out}, {0, bert_deviation});
  }
  Value bias(const std::string& parameter, std::int64_t out) const {
    return builder.parameter(parameter + ".bias", {out}, {0, 0});
  }
  Value norm(const std::string& op, const std::string& parameter, Value x) const {
    Value gain = builder.parameter(parameter + ".weight", {config.width}, {1, 0});
    Value shift = bias(parameter, config.width);
    return nn::layer_norm(builder, op, x, gain, shift, config.epsilon);
  }
  Value linear(const std::string& op, const std::string& parameter, Value x, std::int64_t in,
               std::int64_t out) const {
    Value shift = bias(parameter, out);
    return nn::linear(builder, op, x, weight(parameter, in, out), shift);
  }
  Value linear_gelu(const std::string& op, const std::string& parameter, Value x, std::int64_t out) const {
    Value shift = bias(parameter, out);
    return nn::linear_gelu(builder, op, x, weight(parameter, config.width, out), shift, nn::Gelu::erf);
  }
  Value normed(const Trunk& trunk) const {
    return trunk.norm.empty() ? trunk.sum : norm(trunk.norm, trunk.parameter, trunk.sum);
  }
  // `rows`: those of x that y belongs to; empty: all.
  Trunk join(const std::string& branch, const std::string& parameter, Value x, Value y,
             Value rows = {}) const {
    const std::string name = branch + ".residual";
    if (rows) y = nn::dropout(builder, branch + ".dropout", y, config.dropout);
    Value sum =
        rows ? nn::add_rows(builder, name, x, y, rows) : nn::add_dropout(builder, name, x, y, config.dropout);
    return {sum, branch + ".norm", parameter + ".LayerNorm"};
  }

  // The result of attention, and the rows that the layer's MLP works on; empty if it works on all.
  struct Attended {
    Value y, rows{};
  };
  Attended attend(const std::string& name, Value qkv, Value seen) const {
    const nn::AttentionOptions options{.heads = config.heads,
                                       .sequence = config.sequence,
                                       .causal = false,
                                       .dropout = config.attention_dropout.value_or(config.dropout),
                                       .seen = seen,
                                       .padding_at_end = config.padding_at_end};
    const std::int64_t kept = kept_tokens(config);
    if (kept == config.sequence) return {nn::attention(builder, name, qkv, options)};
    const auto [y, scores] = nn::scored_attention(builder, name, qkv, options);
    return {y, nn::top_tokens(builder, name + ".kept", scores, seen, config.sequence, kept)};
  }
  Trunk attention(const std::string& layer, std::uint32_t part, const Trunk& trunk, Value seen) const {
    const std::string name = layer + "attention";
    const std::string parameter = "bert.encoder." + name;
    builder.begin_unit(name, part);
    Value x = normed(trunk);
    Value qkv = linear(name + ".qkv", parameter + ".self.query_key_value", x, config.width, 3 * config.width);
    const auto [attended, rows] = attend(name, qkv, seen);
    Value y = linear(name + ".output", parameter + ".output.dense", attended, config.width, config.width);
    Trunk joined = join(name, parameter + ".output", x, y);
    joined.rows = rows;
    return joined;
  }
  Trunk mlp(const std::string& layer, std::uint32_t part, const Trunk& trunk) const {
    const std::string name = layer + "mlp";
    const std::string parameter = "bert.encoder." + layer;
    builder.begin_unit(name, part);
    Value x = normed(trunk);
    Value kept = trunk.rows ? nn::take_rows(builder, name + ".kept", x, trunk.rows) : x;
    Value y = linear_gelu(name + ".up", parameter + "intermediate.dense", kept, 4 * config.width);
    y = linear(name + ".down", parameter + "output.dense", y, 4 * config.width, config.width);
    return join(name, parameter + "output", x, y, trunk.rows);
  }

  Trunk embedding(std::uint32_t part, const BuiltModel& model, Value table, Value positions) const {
    builder.begin_unit("embedding", part);
    Value x = nn::embedding(builder, "embedding", model.tokens, table, positions, config.sequence);
    if (config.pretraining) {
      Value types = weight("bert.embeddings.token_type_embeddings", segments, config.width);
      Value type =
          nn::embedding(builder, "embedding.token_types", model.token_types, types, {}, config.sequence);
      x = nn::add(builder, "embedding.sum", x, type);
    }
    x = norm("embedding.norm", "bert.embeddings.LayerNorm", x);
    return {nn::dropout(builder, "embedding.dropout", x, config.dropout), {}, {}};
  }

  // Returns the loss of the masked tokens; sets the logits if the full tensor exists.
  Value masked_loss(Value x, Value table, Value shift, BuiltModel& model) const {
    const std::int64_t chunk = head_tokens(config, builder.work_type());
    if (chunk > 0) {
      return nn::linear_cross_entropy(
          builder, "loss", x, table, model.targets,
          {.transposed = true, .chunk = chunk, .vocabulary = config.vocabulary, .bias = shift});
    }
    model.logits = nn::linear(builder, "head", x, table, shift, true);
    return nn::cross_entropy(builder, "loss", model.logits, model.targets, config.vocabulary);
  }
  // Returns the loss of predicting, from the first token, whether the second segment follows the first; sets
  // the model's logits to this micro-batch's.
  Value next_sentence_loss(Value x, BuiltModel& model) const {
    Value first = nn::first_token(builder, "pooler.first", x, config.sequence);
    Value pooled = linear("pooler.dense", "bert.pooler.dense", first, config.width, config.width);
    pooled = nn::tanh(builder, "pooler", pooled);
    model.next_sentence_logits =
        linear("next_sentence.logits", "cls.seq_relationship", pooled, config.width, segments);
    return nn::cross_entropy(builder, "next_sentence.loss", model.next_sentence_logits, model.next_sentence);
  }
  // Returns the micro-batch's part of the loss. The op that writes gradients comes last.
  Value head(std::uint32_t part, const Trunk& trunk, Value table, BuiltModel& model) const {
    builder.begin_unit("head", part);
    Value x = normed(trunk);
    if (!config.pretraining) return masked_loss(x, table, {}, model);
    Value next = next_sentence_loss(x, model);
    const std::string transform = "cls.predictions.transform";
    Value y = linear_gelu("transform", transform + ".dense", x, config.width);
    y = norm("transform.norm", transform + ".LayerNorm", y);
    Value shift = bias("cls.predictions", builder.tensor(table).shape[0]);
    return builder.add_loss(next, masked_loss(y, table, shift, model));
  }
};

BuiltModel inputs(GraphBuilder& builder, const ModelConfig& config) {
  const std::int64_t tokens = config.batch * config.sequence;
  BuiltModel model;
  model.tokens = builder.input("tokens", {tokens});
  model.targets = builder.input("targets", {tokens});
  const auto vocabulary = static_cast<std::int32_t>(config.vocabulary);
  model.inputs = {{model.tokens, vocabulary}, {model.targets, vocabulary}};
  if (!config.pretraining) return model;
  model.token_types = builder.input("token_types", {tokens});
  model.seen = builder.input("seen", {tokens});
  model.next_sentence = builder.input("next_sentence", {config.batch});
  // A made-up batch has every token seen: padding is allowed at the end alone.
  model.inputs.insert(model.inputs.end(), {{model.token_types, static_cast<std::int32_t>(segments)},
                                           {model.seen, 2, 1},
                                           {model.next_sentence, static_cast<std::int32_t>(segments)}});
  return model;
}

}  // namespace

BuiltModel bert(GraphBuilder& builder, const ModelConfig& config) {
  require_valid(bert_family.name, config);
  const Encoder encoder{builder, config};
  set_up(builder, config);
  const std::uint32_t parts = builder.micro_batch().count;
  BuiltModel model = inputs(builder, config);
  Value table = encoder.weight("bert.embeddings.word_embeddings", rows_of_vocabulary(config), config.width);
  Value positions = encoder.weight("bert.embeddings.position_embeddings", config.sequence, config.width);

  std::vector<Trunk> x(parts);
  for (std::uint32_t part = 0; part < parts; ++part)
    x[part] = encoder.embedding(part, model, table, positions);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = fmt::format("layer.{}.", i);
    for (std::uint32_t part = 0; part < parts; ++part)
      x[part] = encoder.attention(layer, part, x[part], model.seen);
    for (std::uint32_t part = 0; part < parts; ++part) x[part] = encoder.mlp(layer, part, x[part]);
  }
  for (std::uint32_t part = 0; part < parts; ++part)
    model.loss = builder.sum_loss(encoder.head(part, x[part], table, model));
  if (config.micro_batches > 1) model.logits = model.next_sentence_logits = {};
  return model;
}

// The vocabulary is BERT's 30,522, padded to a multiple of 32.
constinit const ModelFamily bert_family{.name = "bert",
                                        .title = "BERT",
                                        .generates = false,
                                        .learned_positions = true,
                                        .defaults = {.layers = 12,
                                                     .width = 768,
                                                     .heads = 12,
                                                     .vocabulary = 30528,
                                                     .sequence = 512,
                                                     .epsilon = 1e-12,
                                                     .pretraining = true,
                                                     .padding_at_end = true},
                                        .build = bert};

}  // namespace stowage
