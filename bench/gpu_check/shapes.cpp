#include "bench/gpu_check/shapes.h"

#include <fmt/format.h>

#include <random>

#include "stowage/error.h"
#include "stowage/models.h"

namespace stowage::bench {
namespace {

constexpr std::uint32_t masked_of_100 = 15;  // tokens that a masked-token model must find

}  // namespace

ShapedModel build(const Shape& shape) {
  const ModelFamily* family = find_model_family(shape.model);
  if (family == nullptr)
    throw InvalidInput(fmt::format("model '{}': unknown; ask for gpt or bert", shape.model));
  GraphBuilder builder(shape.type);
  const BuiltModel made = family->build(builder, {.layers = shape.layers,
                                                  .width = shape.width,
                                                  .heads = shape.heads,
                                                  .vocabulary = shape.vocabulary,
                                                  .sequence = shape.sequence,
                                                  .batch = shape.batch,
                                                  .head_tokens = shape.head_tokens,
                                                  .epsilon = family->defaults.epsilon});
  return {made.tokens, made.targets, builder.finish(made.loss, AdamW{.moments = shape.moments})};
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
