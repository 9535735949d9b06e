// Names and layout follow the GPT-2 checkpoints that Hugging Face publishes, without their "transformer."
// prefix: weights of linear ops are [in, out], the head is tied to wte.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "src/models/require_valid.h"
#include "stowage/models.h"
#include "stowage/nn.h"

namespace stowage {
namespace {

constexpr double deviation = 0.02;

// Builds ops with the parameters of the same name, which begins with the layer's prefix: "h.3.".
struct Layers {
  GraphBuilder& builder;
  const ModelConfig& config;

  Value norm(const std::string& name, Value x) const {
    Value gain = builder.parameter(name + ".weight", {config.width}, {1, 0});
    Value bias = builder.parameter(name + ".bias", {config.width}, {0, 0});
    return nn::layer_norm(builder, name, x, gain, bias, config.epsilon);
  }

  Value linear(const std::string& name, Value x, std::int64_t in, std::int64_t out, double scale) const {
    Value weight = builder.parameter(name + ".weight", {in, out}, {0, deviation * scale});
    Value bias = builder.parameter(name + ".bias", {out}, {0, 0});
    return nn::linear(builder, name, x, weight, bias);
  }

  // Output projection (initialised / sqrt(2 layers)) and residual add.
  Value join(const std::string& branch, Value trunk, Value x, std::int64_t in) const {
    double scale = 1 / std::sqrt(2 * static_cast<double>(config.layers));
    Value y = linear(branch + ".c_proj", x, in, config.width, scale);
    return nn::add_dropout(builder, branch + ".residual", trunk, y,
                           config.residual_dropout.value_or(config.dropout));
  }

  Value attention(const std::string& h, std::uint32_t part, Value x) const {
    builder.begin_unit(h + "attention", part);
    Value qkv = linear(h + "attn.c_attn", norm(h + "ln_1", x), config.width, 3 * config.width, 1);
    Value y = nn::attention(builder, h + "attn", qkv,
                            {.heads = config.heads,
                             .sequence = config.sequence,
                             .causal = true,
                             .dropout = config.attention_dropout.value_or(config.dropout)});
    return join(h + "attn", x, y, config.width);
  }

  Value mlp(const std::string& h, std::uint32_t part, Value x) const {
    builder.begin_unit(h + "mlp", part);
    Value weight = builder.parameter(h + "mlp.c_fc.weight", {config.width, 4 * config.width}, {0, deviation});
    Value bias = builder.parameter(h + "mlp.c_fc.bias", {4 * config.width}, {0, 0});
    Value y = nn::linear_gelu(builder, h + "mlp.c_fc", norm(h + "ln_2", x), weight, bias, nn::Gelu::tanh);
    return join(h + "mlp", x, y, 4 * config.width);
  }

  Value embedding(std::uint32_t part, Value tokens, Value table, Value positions) const {
    builder.begin_unit("embedding", part);
    Value x = nn::embedding(builder, "embedding", tokens, table, positions, config.sequence);
    return nn::dropout(builder, "embedding.dropout", x, config.embedding_dropout.value_or(config.dropout));
  }

  // Returns the micro-batch's part of the loss; sets the logits if the full tensor exists.
  Value head(std::uint32_t part, Value x, Value table, BuiltModel& model) const {
    builder.begin_unit("head", part);
    x = norm("ln_f", x);
    const std::int64_t chunk = head_tokens(config, builder.work_type());
    if (chunk > 0) {
      return nn::linear_cross_entropy(builder, "loss", x, table, model.targets,
                                      {.transposed = true, .chunk = chunk, .vocabulary = config.vocabulary});
    }
    model.logits = nn::linear(builder, "head", x, table, {}, true);
    return nn::cross_entropy(builder, "loss", model.logits, model.targets, config.vocabulary);
  }
};

}  // namespace

BuiltModel gpt(GraphBuilder& builder, const ModelConfig& config) {
  require_valid(gpt_family.name, config);
  const Layers layers{builder, config};
  set_up(builder, config);
  const std::uint32_t parts = builder.micro_batch().count;
  BuiltModel model;
  model.tokens = builder.input("tokens", {config.batch * config.sequence});
  model.targets = builder.input("targets", {config.batch * config.sequence});

  Value table = builder.parameter("wte.weight", {rows_of_vocabulary(config), config.width}, {0, deviation});
  Value positions = builder.parameter("wpe.weight", {config.sequence, config.width}, {0, deviation});

  std::vector<Value> x(parts);
  for (std::uint32_t part = 0; part < parts; ++part)
    x[part] = layers.embedding(part, model.tokens, table, positions);
  for (std::int64_t i = 0; i < config.layers; ++i) {
    const std::string h = fmt::format("h.{}.", i);
    for (std::uint32_t part = 0; part < parts; ++part) x[part] = layers.attention(h, part, x[part]);
    for (std::uint32_t part = 0; part < parts; ++part) x[part] = layers.mlp(h, part, x[part]);
  }
  for (std::uint32_t part = 0; part < parts; ++part)
    model.loss = builder.sum_loss(layers.head(part, x[part], table, model));
  if (config.micro_batches > 1) model.logits = {};
  const auto vocabulary = static_cast<std::int32_t>(config.vocabulary);
  model.inputs = {{model.tokens, vocabulary}, {model.targets, vocabulary}};
  return model;
}

// The vocabulary is GPT-2's 50,257, padded to a multiple of 32.
constinit const ModelFamily gpt_family{
    .name = "gpt",
    .title = "GPT-2",
    .generates = true,
    .learned_positions = true,
    .defaults = {.layers = 12, .width = 768, .heads = 12, .vocabulary = 50304, .sequence = 1024},
    .build = gpt};

}  // namespace stowage
