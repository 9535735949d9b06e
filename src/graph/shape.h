// Sizes of tensors whose shape nobody has vouched for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stowage/graph.h"

namespace stowage {

// Bytes of `shape` elements of `type`; empty when a dimension is below 1 or the bytes exceed 2^63 - 1.
std::optional<Bytes> checked_bytes(const std::vector<std::int64_t>& shape, DataType type);

// "[8, 384]", for messages.
std::string describe(const std::vector<std::int64_t>& shape);

}  // namespace stowage
