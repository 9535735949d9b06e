// The order of scores, as whole numbers that hosts and cards compare alike.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/math/host_device.h"

namespace stowage {

// Turns the bits of a number that is not NaN into a whole number; numbers and whole numbers have one order.
template <class Bits>
STOWAGE_HOST_DEVICE Bits ordered_bits(Bits bits) {
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  return (bits & sign) != 0 ? static_cast<Bits>(~bits) : static_cast<Bits>(bits | sign);
}

// Returns a larger number for a larger score, 1 for NaN and 0 for a token that is not seen: both stand behind
// every score. -0 is 0.
STOWAGE_HOST_DEVICE std::uint32_t score_order(float score, bool seen) {
  if (!seen) return 0;
  return score == score ? ordered_bits(std::bit_cast<std::uint32_t>(score + 0.0F)) : 1;
}
STOWAGE_HOST_DEVICE std::uint64_t score_order(double score, bool seen) {
  if (!seen) return 0;
  return score == score ? ordered_bits(std::bit_cast<std::uint64_t>(score + 0.0)) : 1;
}

}  // namespace stowage
