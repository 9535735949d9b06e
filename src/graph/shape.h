// Sizes of tensors with untrusted shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stowage/graph.h"

namespace stowage {

// Returns the bytes of a tensor; nullopt if a dimension is below 1 or the bytes exceed 2^63 - 1.
std::optional<Bytes> checked_bytes(const std::vector<std::int64_t>& shape, DataType type);

// Returns "[8, 384]", for messages.
std::string describe(const std::vector<std::int64_t>& shape);

}  // namespace stowage
