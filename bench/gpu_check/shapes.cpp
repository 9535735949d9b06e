#include "bench/gpu_check/shapes.h"

#include <fmt/format.h>

#include <random>

#include "stowage/error.h"
#include "stowage/models.h"
#include "stowage/nn.h"

namespace stowage::bench {
namespace {

constexpr double deviation = 0.02;
constexpr std::uint32_t masked_of_100 = 15;  // tokens that a masked-token model must find

// The encoder of Devlin et al., "BERT", without segments and pooler, its head tied to the embedding.
struct Encoder {
  GraphBuilder& builder;
  const Shape& shape;

  Value norm(const std::string& name, Value x) const {
    Value gain = builder.parameter(name + ".weight", {shape.width}, {1, 0});
    Value bias = builder.parameter(name + ".bias", {shape.width}, {0, 0});
    return nn::layer_norm(builder, name, x, gain, bias, 1e-12);
  }
  Value weight(const std::string& name, std::int64_t in, std::int64_t out) const {
    return builder.parameter(name + ".weight", {in, out}, {0, deviation});
  }
  Value bias(const std::string& name, std::int64_t out) const {
    return builder.parameter(name + ".bias", {out}, {0, 0});
  }
  Value linear(const std::string& name, Value x, std::int64_t in, std::int64_t out) const {
    return nn::linear(builder, name, x, weight(name, in, out), bias(name, out));
  }

  Value attention(const std::string& layer, Value x) const {
    builder.begin_unit(layer + "attention");
    Value qkv = linear(layer + "attention.qkv", x, shape.width, 3 * shape.width);
    Value y =
        nn::attention(builder, layer + "attention", qkv,
                      {.heads = shape.heads, .sequence = shape.sequence, .causal = false, .dropout = 0});
    y = linear(layer + "attention.output", y, shape.width, shape.width);
    y = nn::add(builder, layer + "attention.residual", x, y);
    return norm(layer + "attention.norm", y);
  }
  Value feed_forward(const std::string& layer, Value x) const {
    builder.begin_unit(layer + "mlp");
    const std::string up = layer + "mlp.up";
    Value y = nn::linear_gelu(builder, up, x, weight(up, shape.width, 4 * shape.width),
                              bias(up, 4 * shape.width), nn::Gelu::erf);
    y = linear(layer + "mlp.down", y, 4 * shape.width, shape.width);
    y = nn::add(builder, layer + "mlp.residual", x, y);
    return norm(layer + "mlp.norm", y);
  }
};

Value encoder_loss(GraphBuilder& builder, const Shape& shape, ShapedModel& model) {
  const Encoder encoder{builder, shape};
  model.tokens = builder.input("tokens", {shape.tokens()});
  model.targets = builder.input("targets", {shape.tokens()});
  builder.begin_unit("embedding");
  Value table = builder.parameter("tokens.weight", {shape.vocabulary, shape.width}, {0, deviation});
  Value positions = builder.parameter("positions.weight", {shape.sequence, shape.width}, {0, deviation});
  Value x = nn::embedding(builder, "embedding", model.tokens, table, positions, shape.sequence);
  x = encoder.norm("embedding.norm", x);
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    const std::string layer = fmt::format("layer.{}.", i);
    x = encoder.feed_forward(layer, encoder.attention(layer, x));
  }
  builder.begin_unit("head");
  return nn::linear_cross_entropy(builder, "loss", x, table, model.targets, true, shape.head_tokens);
}

Value gpt_loss(GraphBuilder& builder, const Shape& shape, ShapedModel& model) {
  const Gpt made = gpt(builder, {.layers = shape.layers,
                                 .width = shape.width,
                                 .heads = shape.heads,
                                 .vocabulary = shape.vocabulary,
                                 .sequence = shape.sequence,
                                 .batch = shape.batch,
                                 .dropout = 0,
                                 .head_tokens = shape.head_tokens});
  model.tokens = made.tokens;
  model.targets = made.targets;
  return made.loss;
}

}  // namespace

ShapedModel build(const Shape& shape) {
  if (shape.model != "gpt" && shape.model != "bert")
    throw InvalidInput(fmt::format("model '{}': unknown; ask for gpt or bert", shape.model));
  if (shape.heads < 1 || shape.width % shape.heads != 0)
    throw InvalidInput(
        fmt::format("width {} is not divisible by heads {}; change one of them", shape.width, shape.heads));
  ShapedModel model;
  GraphBuilder builder(shape.type);
  const Value loss =
      shape.model == "gpt" ? gpt_loss(builder, shape, model) : encoder_loss(builder, shape, model);
  model.graph = builder.finish(loss, AdamW{});
  return model;
}

double model_flops(const Shape& shape) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double weights = number(shape.layers) * 12 * number(shape.width) * number(shape.width) +
                         number(shape.vocabulary) * number(shape.width);
  const double attention = 12 * number(shape.layers) * number(shape.width) * number(shape.sequence) *
                           (shape.model == "gpt" ? 0.5 : 1.0);
  return number(shape.tokens()) * (6 * weights + attention);
}

void fill(const Shape& shape, std::uint64_t seed, std::uint64_t step, ShapedBatch& batch) {
  std::mt19937_64 random(seed * 1'000'003 + step);
  const auto vocabulary = static_cast<std::uint64_t>(shape.vocabulary);
  const auto count = static_cast<std::size_t>(shape.tokens());
  batch.tokens.resize(count);
  batch.targets.resize(count);
  const bool masked = shape.model == "bert";
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t draw = random();
    batch.tokens[i] = static_cast<std::int32_t>(draw % vocabulary);
    const auto target = static_cast<std::int32_t>((draw >> 32U) % vocabulary);
    batch.targets[i] = masked && random() % 100 >= masked_of_100 ? -1 : target;
  }
}

}  // namespace stowage::bench
