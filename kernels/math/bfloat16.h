// bfloat16: the upper half of an f32. Rounds to the nearest, ties to even; NaN stays NaN.
//
// Split master weights (Zamirai et al., "Revisiting BFloat16 Training", and the split SGD of Kalamkar
// et al., "A Study of BFLOAT16 for Deep Learning Training"): a bf16 weight and 16 signed bits beside it
// make the f32 that the optimizer works on, with nothing stored twice.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/math/host_device.h"

namespace stowage {

struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  STOWAGE_HOST_DEVICE explicit Bfloat16(float value) : bits(round(value)) {}
  STOWAGE_HOST_DEVICE explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }

 private:
  STOWAGE_HOST_DEVICE static std::uint16_t round(float value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    if ((all & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((all >> 16U) | 0x40U);
    return static_cast<std::uint16_t>((all + 0x7fffU + ((all >> 16U) & 1U)) >> 16U);
  }
};
static_assert(sizeof(Bfloat16) == 2);

// A master weight in two halves: its bits are (weight << 16) + low. The rounding rule: `weight` is the master
// rounded to the nearest bf16, and a master halfway between two takes the one that is farther from zero
// (`Bfloat16` takes the even one), since -2^15 fits into `low` and 2^15 does not.
struct SplitWeight {
  Bfloat16 weight;
  std::int16_t low = 0;
};

STOWAGE_HOST_DEVICE float joined(SplitWeight split) {
  const auto high = static_cast<std::uint32_t>(split.weight.bits) << 16U;
  return std::bit_cast<float>(high + static_cast<std::uint32_t>(static_cast<std::int32_t>(split.low)));
}

// Returns the split whose `joined` has these bits, any of the 2^32.
STOWAGE_HOST_DEVICE SplitWeight split_of_bits(std::uint32_t bits) {
  SplitWeight result;
  result.weight.bits = static_cast<std::uint16_t>((bits + 0x8000U) >> 16U);
  result.low = static_cast<std::int16_t>(static_cast<std::uint16_t>(bits));
  return result;
}

// Splits a master weight; `joined` gives every bit back, except the payload of a NaN, whose weight could
// round to a number.
STOWAGE_HOST_DEVICE SplitWeight split(float master) {
  auto all = std::bit_cast<std::uint32_t>(master);
  if ((all & 0x7fffffffU) > 0x7f800000U) all = 0x7fc00000U;
  return split_of_bits(all);
}

}  // namespace stowage
