#include <fmt/format.h>

#include <vector>

#include "src/models/require_valid.h"
#include "stowage/models.h"
#include "stowage/nn.h"

namespace stowage {
namespace {

constexpr double bert_deviation = 0.02;

// Builds with the parameters of one name, which begins with the layer's prefix: "layer.3.".
struct Encoder {
  GraphBuilder& builder;
  const BertConfig& config;

  Value weight(const std::string& name, std::int64_t in, std::int64_t out) const {
    return builder.parameter(name + ".weight", {in, out}, {0, bert_deviation});
  }
  Value bias(const std::string& name, std::int64_t out) const {
    return builder.parameter(name + ".bias", {out}, {0, 0});
  }
  Value norm(const std::string& name, Value x) const {
    Value gain = builder.parameter(name + ".weight", {config.width}, {1, 0});
    Value shift = bias(name, config.width);
    return nn::layer_norm(builder, name, x, gain, shift, 1e-12);
  }
  Value linear(const std::string& name, Value x, std::int64_t in, std::int64_t out) const {
    Value shift = bias(name, out);
    return nn::linear(builder, name, x, weight(name, in, out), shift);
  }
  // The way back to the trunk, and the norm behind it.
  Value join(const std::string& branch, Value trunk, Value y) const {
    y = nn::dropout(builder, branch + ".dropout", y, config.dropout);
    return norm(branch + ".norm", nn::add(builder, branch + ".residual", trunk, y));
  }

  Value attention(const std::string& layer, std::uint32_t part, Value x) const {
    const std::string name = layer + "attention";
    builder.begin_unit(name, part);
    Value qkv = linear(name + ".qkv", x, config.width, 3 * config.width);
    Value y = nn::attention(
        builder, name, qkv,
        {.heads = config.heads, .sequence = config.sequence, .causal = false, .dropout = config.dropout});
    return join(name, x, linear(name + ".output", y, config.width, config.width));
  }
  Value mlp(const std::string& layer, std::uint32_t part, Value x) const {
    const std::string name = layer + "mlp";
    builder.begin_unit(name, part);
    const std::string up = name + ".up";
    Value shift = bias(up, 4 * config.width);
    Value y =
        nn::linear_gelu(builder, up, x, weight(up, config.width, 4 * config.width), shift, nn::Gelu::erf);
    return join(name, x, linear(name + ".down", y, 4 * config.width, config.width));
  }

  Value embedding(std::uint32_t part, Value tokens, Value table, Value positions) const {
    builder.begin_unit("embedding", part);
    Value x = nn::embedding(builder, "embedding", tokens, table, positions, config.sequence);
    return nn::dropout(builder, "embedding.dropout", norm("embedding.norm", x), config.dropout);
  }
  // The micro-batch's part of the loss.
  Value head(std::uint32_t part, Value x, Value table, Value targets) const {
    builder.begin_unit("head", part);
    return nn::linear_cross_entropy(builder, "loss", x, table, targets, true, config.head_tokens);
  }
};

}  // namespace

Bert bert(GraphBuilder& builder, const BertConfig& config) {
  require_valid("bert", config);
  const Encoder encoder{builder, config};
  const auto parts = static_cast<std::uint32_t>(config.micro_batches);
  builder.split_batch(parts);
  Bert model;
  model.tokens = builder.input("tokens", {config.batch * config.sequence});
  model.targets = builder.input("targets", {config.batch * config.sequence});
  Value table = builder.parameter("tokens.weight", {config.vocabulary, config.width}, {0, bert_deviation});
  Value positions =
      builder.parameter("positions.weight", {config.sequence, config.width}, {0, bert_deviation});

  std::vector<Value> x(parts);
  for (std::uint32_t part = 0; part < parts; ++part)
    x[part] = encoder.embedding(part, model.tokens, table, positions);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string layer = fmt::format("layer.{}.", i);
    for (std::uint32_t part = 0; part < parts; ++part) x[part] = encoder.attention(layer, part, x[part]);
    for (std::uint32_t part = 0; part < parts; ++part) x[part] = encoder.mlp(layer, part, x[part]);
  }
  for (std::uint32_t part = 0; part < parts; ++part) {
    Value loss = encoder.head(part, x[part], table, model.targets);
    model.loss = part == 0 ? loss : builder.add_loss(model.loss, loss);
  }
  return model;
}

}  // namespace stowage
