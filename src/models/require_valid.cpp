#include "src/models/require_valid.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::int64_t most_layers = 1 << 16;
constexpr std::int64_t most_units = 1 << 18;

struct Checker {
  const ModelSizes& sizes;

  void require(bool holds, const std::string& saying) const {
    if (!holds) throw InvalidInput(fmt::format("{}: {}", sizes.model, saying));
  }
  void positive(const char* name, std::int64_t value) const {
    require(value > 0, fmt::format("{} is {}; give at least 1", name, value));
  }
  // The largest tensors, in bytes of f64, must fit in 63 bits.
  void bounded(const char* what, std::initializer_list<std::int64_t> factors) const {
    std::int64_t product = 8;
    for (std::int64_t factor : factors) {
      require(!__builtin_mul_overflow(product, factor, &product),
              fmt::format("{} overflows 63 bits of bytes; make one of them smaller", what));
    }
  }
};

void require_positive(const Checker& checker, const ModelSizes& sizes) {
  using Field = std::pair<const char*, std::int64_t>;
  for (auto [name, value] :
       std::array{Field{"layers", sizes.layers}, Field{"width", sizes.width}, Field{"heads", sizes.heads},
                  Field{"vocabulary", sizes.vocabulary}, Field{"sequence", sizes.sequence},
                  Field{"batch", sizes.batch}, Field{"micro_batches", sizes.micro_batches}}) {
    checker.positive(name, value);
  }
}

void require_bounded(const Checker& checker, const ModelSizes& sizes) {
  checker.bounded("width * width", {4, sizes.width, sizes.width});
  const std::int64_t rows = std::max(sizes.vocabulary, sizes.padded_vocabulary);
  checker.bounded("vocabulary * width", {rows, sizes.width});
  checker.bounded("batch * sequence * width", {sizes.batch, sizes.sequence, 4, sizes.width});
  checker.bounded("batch * sequence * vocabulary", {sizes.batch, sizes.sequence, rows});
}

}  // namespace

void require_valid(const ModelSizes& sizes) {
  const Checker checker{sizes};
  require_positive(checker, sizes);
  checker.require(
      sizes.width % sizes.heads == 0,
      fmt::format("width {} is not divisible by heads {}; change one of them", sizes.width, sizes.heads));
  for (auto [name, dropout] : sizes.dropouts) {
    checker.require(dropout >= 0 && dropout < 1,
                    fmt::format("{} {} is outside [0, 1); choose one inside", name, dropout));
  }
  checker.require(sizes.epsilon > 0 && std::isfinite(sizes.epsilon),
                  fmt::format("epsilon {} is not above 0; give a small one, as 1e-5", sizes.epsilon));
  checker.require(sizes.padded_vocabulary == 0 || sizes.padded_vocabulary >= sizes.vocabulary,
                  fmt::format("padded_vocabulary {} is below vocabulary {}; give at least that, or 0 for it",
                              sizes.padded_vocabulary, sizes.vocabulary));
  checker.require(sizes.head_tokens >= 0,
                  fmt::format("head_tokens is {}; give tokens, or 0 for all of them", sizes.head_tokens));
  checker.require(sizes.layers <= most_layers,
                  fmt::format("layers is {}; give at most {}", sizes.layers, most_layers));
  checker.require(sizes.batch % sizes.micro_batches == 0,
                  fmt::format("batch {} is not divisible by micro_batches {}; change one of them",
                              sizes.batch, sizes.micro_batches));
  checker.require(sizes.micro_batches <= most_units / (2 * sizes.layers + 2),
                  fmt::format("micro_batches {} with layers {} makes too many ops; give fewer of one of them",
                              sizes.micro_batches, sizes.layers));
  checker.require(
      sizes.vocabulary <= std::numeric_limits<std::int32_t>::max(),
      fmt::format("vocabulary {} does not fit the i32 tokens; give at most 2147483647", sizes.vocabulary));
  require_bounded(checker, sizes);
}

}  // namespace stowage
