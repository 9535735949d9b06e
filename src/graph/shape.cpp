#include "src/graph/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace stowage {

std::optional<Bytes> checked_bytes(const std::vector<std::int64_t>& shape, DataType type) {
  auto bytes = static_cast<std::int64_t>(size_of(type));
  for (std::int64_t dimension : shape) {
    if (dimension < 1 || __builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return static_cast<Bytes>(bytes);
}

std::string describe(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace stowage
