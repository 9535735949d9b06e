// Finds NaN and infinity among a tensor's elements, on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "stowage/graph.h"

namespace stowage {

struct NonFiniteElement {
  std::uint64_t index = 0;  // position of the element
  bool is_nan = false;      // false: the element is infinite
};

// Returns the first non-finite element of `values`: whole elements of `type` in the machine's format, at any
// address. Integers are always finite.
std::optional<NonFiniteElement> first_non_finite(DataType type, std::span<const std::byte> values);

}  // namespace stowage
