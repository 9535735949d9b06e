#include "src/models/require_valid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::int64_t most_units = 1 << 18;

std::int64_t blocks_of(std::int64_t rows, std::int64_t of_each) { return (rows + of_each - 1) / of_each; }

struct Checker {
  std::string_view model;

  void require(bool holds, const std::string& saying) const {
    if (!holds) throw InvalidInput(fmt::format("{}: {}", model, saying));
  }
};

void require_in_range(const Checker& checker, const ModelConfig& sizes) {
  struct Field {
    const char* name;
    std::int64_t value;
    std::int64_t most = most_of_others;
  };
  for (const auto& [name, value, most] :
       {Field{"layers", sizes.layers, most_layers}, Field{"width", sizes.width, most_width},
        Field{"heads", sizes.heads}, Field{"vocabulary", sizes.vocabulary}, Field{"sequence", sizes.sequence},
        Field{"batch", sizes.batch}, Field{"micro_batches", sizes.micro_batches},
        Field{"gradient_groups", sizes.gradient_groups}, Field{"ranks", sizes.ranks}}) {
    checker.require(value > 0, fmt::format("{} is {}; give at least 1", name, value));
    checker.require(value <= most, fmt::format("{} is {}; give at most {}", name, value, most));
  }
}

void require_heads(const Checker& checker, const ModelConfig& sizes) {
  for (const auto& [name, value] :
       {std::pair{"key_heads", sizes.key_heads}, {"head_width", sizes.head_width}, {"inner", sizes.inner}})
    checker.require(value >= 0 && value <= most_width,
                    fmt::format("{} is {}; give 0 to {}", name, value, most_width));
  checker.require(
      sizes.head_width > 0 || sizes.width % sizes.heads == 0,
      fmt::format("width {} is not divisible by heads {}; change one of them", sizes.width, sizes.heads));
  checker.require(sizes.key_heads == 0 || sizes.heads % sizes.key_heads == 0,
                  fmt::format("heads {} is not divisible by key_heads {}; change one of them", sizes.heads,
                              sizes.key_heads));
  checker.require(sizes.windows.empty() || std::ssize(sizes.windows) == sizes.layers,
                  fmt::format("windows has {} numbers and layers is {}; give one for each layer, or none",
                              sizes.windows.size(), sizes.layers));
}

void require_divisible(const Checker& checker, const ModelConfig& sizes) {
  checker.require(sizes.batch % sizes.micro_batches == 0,
                  fmt::format("batch {} is not divisible by micro_batches {}; change one of them",
                              sizes.batch, sizes.micro_batches));
  checker.require(
      are_gradient_groups(static_cast<std::uint32_t>(sizes.gradient_groups),
                          static_cast<std::uint32_t>(sizes.micro_batches)),
      fmt::format("gradient_groups {} is no power of two that divides micro_batches {}; change one of them",
                  sizes.gradient_groups, sizes.micro_batches));
  checker.require(sizes.gradient_groups % sizes.ranks == 0,
                  fmt::format("gradient_groups {} is not divisible by ranks {}; change one of them",
                              sizes.gradient_groups, sizes.ranks));
  checker.require(sizes.rank >= 0 && sizes.rank < sizes.ranks,
                  fmt::format("rank is {} of {} ranks; ranks count from 0", sizes.rank, sizes.ranks));
}

// Estimates from above: 32 bytes for each parameter, 40 activations of a layer's largest width, all logits,
// and a byte for each of attention's probabilities.
void require_bounded(const Checker& checker, const ModelConfig& sizes) {
  const auto number = [](std::int64_t value) { return static_cast<double>(value); };
  const double width = number(sizes.width), layers = number(sizes.layers), heads = number(sizes.heads);
  const std::int64_t rows = std::max(sizes.vocabulary, sizes.padded_vocabulary);
  const double tokens = number(sizes.batch) * number(sizes.sequence);
  // Widths of all query heads together, and within the MLP, that may be larger than the width.
  const double widest =
      std::max({width, heads * number(width_of_head(sizes)), number(width_of_mlp(sizes)) / 4});
  const double parameters = width * (16 * layers * (widest + 1) + 2 * number(rows) + number(sizes.sequence));
  const double activations = tokens * (layers + 1) * (widest + heads);
  const double bytes = 32 * parameters + 320 * activations + 8 * tokens * number(rows) +
                       tokens * heads * number(sizes.sequence);
  checker.require(
      bytes <= most_step_bytes,
      fmt::format("{} layers, width {}, heads {}, vocabulary {}, {} samples of {} tokens: larger than any "
                  "machine; make batch, sequence or the model smaller",
                  sizes.layers, sizes.width, sizes.heads, rows, sizes.batch, sizes.sequence));
}

constexpr std::int64_t least_head_tokens = 2048;
constexpr std::int64_t most_head_tokens = 8192;
// A chunk grows until a vocabulary entry's logits have these bytes per feature.
constexpr std::int64_t bytes_per_feature = 16;
constexpr std::int64_t least_chunks = 4;  // a chunk grows only if this many remain

void require_dropouts(const Checker& checker, const ModelConfig& sizes) {
  struct Rate {
    const char* name;
    double value;
  };
  for (const auto& [name, value] : {Rate{"dropout", sizes.dropout},
                                    {"attention_dropout", sizes.attention_dropout.value_or(0)},
                                    {"embedding_dropout", sizes.embedding_dropout.value_or(0)},
                                    {"residual_dropout", sizes.residual_dropout.value_or(0)}})
    checker.require(value >= 0 && value < 1,
                    fmt::format("{} {} is outside [0, 1); choose one inside", name, value));
}

void require_share(const Checker& checker, const ModelConfig& sizes) {
  checker.require(sizes.keep_tokens > 0 && sizes.keep_tokens <= 1,
                  fmt::format("keep_tokens {} is outside (0, 1]; give a share of the tokens, or 1 for all",
                              sizes.keep_tokens));
  checker.require(sizes.keep_tokens == 1 || checker.model == bert_family.name,
                  fmt::format("keep_tokens is {}, and a token's score comes from later tokens, so the loss "
                              "would know the future; give 1",
                              sizes.keep_tokens));
}

}  // namespace

void require_valid(std::string_view model, const ModelConfig& sizes) {
  const Checker checker{model};
  const std::int64_t chunk = sizes.head_tokens.value_or(0);
  require_in_range(checker, sizes);
  require_heads(checker, sizes);
  require_dropouts(checker, sizes);
  require_share(checker, sizes);
  checker.require(sizes.epsilon > 0 && std::isfinite(sizes.epsilon),
                  fmt::format("epsilon {} is not above 0; give a small one, as 1e-5", sizes.epsilon));
  checker.require(sizes.padded_vocabulary == 0 || sizes.padded_vocabulary >= sizes.vocabulary,
                  fmt::format("padded_vocabulary {} is below vocabulary {}; give at least that, or 0 for it",
                              sizes.padded_vocabulary, sizes.vocabulary));
  const std::int64_t block = sizes.table_rows;
  const std::int64_t rows = rows_of_vocabulary(sizes);
  checker.require(block >= 0 && (block == 0 || blocks_of(rows, block) <= most_blocks),
                  fmt::format("table_rows is {} of {}; give at least {}, or 0 for whole tables", block, rows,
                              blocks_of(rows, most_blocks)));
  checker.require(chunk >= 0, fmt::format("head_tokens is {}; give tokens, or 0 for all of them", chunk));
  require_divisible(checker, sizes);
  const std::int64_t blocks = block == 0 ? 1 : blocks_of(rows, block);
  checker.require(sizes.micro_batches <= most_units / (2 * sizes.layers + 2 * blocks),
                  fmt::format("micro_batches {} with layers {} makes too many ops; give fewer of one of them",
                              sizes.micro_batches, sizes.layers));
  require_bounded(checker, sizes);
}

std::int64_t default_head_tokens(DataType type, std::int64_t width, std::int64_t tokens) {
  std::int64_t chunk = least_head_tokens;
  while (chunk < most_head_tokens &&
         chunk * static_cast<std::int64_t>(size_of(type)) < bytes_per_feature * width &&
         2 * chunk * least_chunks <= tokens)
    chunk *= 2;
  return chunk;
}

std::int64_t head_tokens(const ModelConfig& config, DataType type) {
  const std::int64_t tokens =
      config.batch * config.sequence / std::max<std::int64_t>(config.micro_batches, 1);
  return config.head_tokens.value_or(default_head_tokens(type, config.width, tokens));
}

void set_up(GraphBuilder& builder, const ModelConfig& config) {
  const auto number = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  builder.split_batch(number(config.micro_batches / config.ranks),
                      number(config.gradient_groups / config.ranks),
                      {number(config.rank), number(config.ranks)});
  if (config.code_activations) builder.code_activations(config.code_activations);
}

std::int64_t heads_of_keys(const ModelConfig& config) {
  return config.key_heads == 0 ? config.heads : config.key_heads;
}
std::int64_t width_of_head(const ModelConfig& config) {
  return config.head_width == 0 ? config.width / config.heads : config.head_width;
}
std::int64_t width_of_mlp(const ModelConfig& config) {
  return config.inner == 0 ? 4 * config.width : config.inner;
}

std::int64_t kept_tokens(const ModelConfig& config) {
  const double product = config.keep_tokens * static_cast<double>(config.sequence);
  const double nearest = std::round(product);
  const bool is_whole = std::abs(product - nearest) <= 0x1p-40 * nearest;
  return static_cast<std::int64_t>(is_whole ? nearest : std::ceil(product));
}

std::int64_t rows_of_vocabulary(const ModelConfig& config) {
  return config.padded_vocabulary == 0 ? config.vocabulary : config.padded_vocabulary;
}

std::int64_t rows_of_block(const ModelConfig& config) {
  const std::int64_t all = rows_of_vocabulary(config);
  return config.table_rows == 0 || config.head_tokens == 0 ? all : std::min(config.table_rows, all);
}

}  // namespace stowage
