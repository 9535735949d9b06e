// Sums and products of bytes that stop at `unlimited` instead of wrapping.
#pragma once

#include <cstdint>

#include "stowage/machine.h"

namespace stowage {

inline Bytes saturated_sum(Bytes a, Bytes b) {
  Bytes sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? unlimited : sum;
}

// Requires `times` of at least 0.
inline Bytes saturated_product(Bytes a, std::int64_t times) {
  Bytes product = 0;
  return __builtin_mul_overflow(a, static_cast<Bytes>(times), &product) ? unlimited : product;
}

}  // namespace stowage
