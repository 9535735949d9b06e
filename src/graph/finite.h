// Looks for NaN and infinity among a tensor's elements, on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "stowage/graph.h"

namespace stowage {

struct NonFiniteElement {
  std::uint64_t index = 0;  // of the element
  bool is_nan = false;      // else it is an infinity
};

// The first of `values`, whole elements of `type` as the machine holds them at any address. Whole numbers are
// always finite.
std::optional<NonFiniteElement> first_non_finite(DataType type, std::span<const std::byte> values);

}  // namespace stowage
