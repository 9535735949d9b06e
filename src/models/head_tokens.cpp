#include <algorithm>

#include "stowage/models.h"

namespace stowage {
namespace {

constexpr std::int64_t least = 2048;
constexpr std::int64_t most = 8192;
constexpr std::int64_t bytes_per_feature = 16;  // of a token's logits, for each vocabulary entry
constexpr std::int64_t least_chunks = 4;        // of a larger one than the least

template <class Config>
std::int64_t tokens_of(const Config& config, DataType type) {
  const std::int64_t tokens =
      config.batch * config.sequence / std::max<std::int64_t>(config.micro_batches, 1);
  return config.head_tokens.value_or(default_head_tokens(type, config.width, tokens));
}

}  // namespace

std::int64_t default_head_tokens(DataType type, std::int64_t width, std::int64_t tokens) {
  std::int64_t chunk = least;
  while (chunk < most && chunk * static_cast<std::int64_t>(size_of(type)) < bytes_per_feature * width &&
         2 * chunk * least_chunks <= tokens)
    chunk *= 2;
  return chunk;
}

std::int64_t head_tokens(const GptConfig& config, DataType type) { return tokens_of(config, type); }
std::int64_t head_tokens(const BertConfig& config, DataType type) { return tokens_of(config, type); }

}  // namespace stowage
