// Names and layout are those of the GPT-2 checkpoints that Hugging Face publishes, without their
// "transformer." prefix: weights of linear ops are [in, out], the head is tied to wte.
#include <fmt/format.h>

#include <cmath>

#include "src/models/require_valid.h"
#include "stowage/models.h"
#include "stowage/nn.h"

namespace stowage {
namespace {

constexpr double deviation = 0.02;

// Builds with the parameters of one name, which begins with the layer's prefix: "h.3.".
struct Layers {
  GraphBuilder& builder;
  const GptConfig& config;

  Value norm(const std::string& name, Value x) const {
    Value gain = builder.parameter(name + ".weight", {config.width}, {1, 0});
    Value bias = builder.parameter(name + ".bias", {config.width}, {0, 0});
    return nn::layer_norm(builder, name, x, gain, bias, 1e-5);
  }

  Value linear(const std::string& name, Value x, std::int64_t in, std::int64_t out, double scale) const {
    Value weight = builder.parameter(name + ".weight", {in, out}, {0, deviation * scale});
    Value bias = builder.parameter(name + ".bias", {out}, {0, 0});
    return nn::linear(builder, name, x, weight, bias);
  }

  // The branch's last projection, smaller the more branches add up, and the way back to the trunk.
  Value join(const std::string& branch, Value trunk, Value x, std::int64_t in) const {
    double scale = 1 / std::sqrt(2 * static_cast<double>(config.layers));
    Value y = linear(branch + ".c_proj", x, in, config.width, scale);
    y = nn::dropout(builder, branch + ".dropout", y, config.dropout);
    return nn::add(builder, branch + ".residual", trunk, y);
  }

  Value attention(const std::string& h, Value x) const {
    builder.begin_unit(h + "attention");
    Value qkv = linear(h + "attn.c_attn", norm(h + "ln_1", x), config.width, 3 * config.width, 1);
    Value y = nn::attention(builder, h + "attn", qkv, {config.heads, config.sequence, true, config.dropout});
    return join(h + "attn", x, y, config.width);
  }

  Value mlp(const std::string& h, Value x) const {
    builder.begin_unit(h + "mlp");
    Value weight = builder.parameter(h + "mlp.c_fc.weight", {config.width, 4 * config.width}, {0, deviation});
    Value bias = builder.parameter(h + "mlp.c_fc.bias", {4 * config.width}, {0, 0});
    Value y = nn::linear_gelu(builder, h + "mlp.c_fc", norm(h + "ln_2", x), weight, bias, nn::Gelu::tanh);
    return join(h + "mlp", x, y, 4 * config.width);
  }
};

}  // namespace

Gpt gpt(GraphBuilder& builder, const GptConfig& config) {
  require_valid("gpt", config);
  Layers layers{builder, config};
  Gpt model;
  model.tokens = builder.input("tokens", {config.batch * config.sequence});
  model.targets = builder.input("targets", {config.batch * config.sequence});

  builder.begin_unit("embedding");
  Value table = builder.parameter("wte.weight", {config.vocabulary, config.width}, {0, deviation});
  Value positions = builder.parameter("wpe.weight", {config.sequence, config.width}, {0, deviation});
  Value x = nn::embedding(builder, "embedding", model.tokens, table, positions, config.sequence);
  x = nn::dropout(builder, "embedding.dropout", x, config.dropout);

  for (std::int64_t i = 0; i < config.layers; ++i) {
    x = layers.attention(fmt::format("h.{}.", i), x);
    x = layers.mlp(fmt::format("h.{}.", i), x);
  }

  builder.begin_unit("head");
  x = layers.norm("ln_f", x);
  if (config.head_tokens > 0) {
    model.loss = nn::linear_cross_entropy(builder, "loss", x, table, model.targets, true, config.head_tokens);
    return model;
  }
  model.logits = nn::linear(builder, "head", x, table, {}, true);
  model.loss = nn::cross_entropy(builder, "loss", model.logits, model.targets);
  return model;
}

}  // namespace stowage
