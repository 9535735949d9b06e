// IEEE half precision (binary16): 1 sign, 5 exponent and 10 fraction bits. Rounds to the nearest, ties to
// even; subnormal numbers are kept, 65,520 and more become infinite, NaN stays NaN (a card has a single NaN).
// No branches, so that loops of conversions become vectors. The bits are those of x86's F16C and of the
// compiler's `_Float16`.
//
// Master weights: an f32 weight is kept as its half-precision value and the 32-bit distance between the bits
// of the two (Micikevicius et al., "Mixed Precision Training", keep the whole f32). No f32 is lost, and a
// distance of zero means that the two are equal.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/math/host_device.h"

namespace stowage {

struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  STOWAGE_HOST_DEVICE explicit Float16(float value) : bits(round(std::bit_cast<std::uint32_t>(value))) {}
  STOWAGE_HOST_DEVICE explicit operator float() const { return std::bit_cast<float>(widened(bits)); }

 private:
  static constexpr std::uint32_t infinity = 0x7f800000U, quiet = 0x00400000U;  // bits of f32
  static constexpr std::uint32_t least_normal = 0x38800000U;                   // 2^-14
  static constexpr std::uint32_t too_large = 0x477ff000U;                      // 65,520
  static constexpr std::uint32_t bias = 112U << 23U;  // difference of the exponents' biases in f32 and f16

  // Selects without the branch that compilers make of `?:` here.
  STOWAGE_HOST_DEVICE static std::uint32_t chosen(bool first, std::uint32_t a, std::uint32_t b) {
    const std::uint32_t mask = 0U - static_cast<std::uint32_t>(first);
    return (a & mask) | (b & ~mask);
  }
  STOWAGE_HOST_DEVICE static std::uint16_t round(std::uint32_t all) {
#ifdef __CUDA_ARCH__
    std::uint16_t half = 0;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(std::bit_cast<float>(all)));
    return half;
#else
    const std::uint32_t size = all & 0x7fffffffU;
    const std::uint32_t normal = (size - bias + 0xfffU + ((size >> 13U) & 1U)) >> 13U;
    // Adding 0.5 rounds a small number: the last place of 0.5 in f32 is the last place of f16's subnormal
    // numbers.
    const std::uint32_t small =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - std::bit_cast<std::uint32_t>(0.5F);
    const std::uint32_t nan = 0x7e00U | ((size >> 13U) & 0x3ffU);
    std::uint32_t result = chosen(size < least_normal, small, normal);
    result = chosen(size >= too_large, 0x7c00U, result);
    result = chosen(size > infinity, nan, result);
    return static_cast<std::uint16_t>(result | ((all >> 16U) & 0x8000U));
#endif
  }
  STOWAGE_HOST_DEVICE static std::uint32_t widened(std::uint16_t half) {
#ifdef __CUDA_ARCH__
    float value = 0;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return std::bit_cast<std::uint32_t>(value);
#else
    const std::uint32_t sign = half & 0x8000U, size = (half & 0x7fffU) << 13U;
    const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size + least_normal) -
                                                             std::bit_cast<float>(least_normal));
    const std::uint32_t special = size | infinity | chosen(size > 0x7c00U << 13U, quiet, 0U);
    std::uint32_t result = chosen(size < 0x400U << 13U, small, size + bias);
    result = chosen(size >= 0x7c00U << 13U, special, result);
    return result | (sign << 16U);
#endif
  }
};
static_assert(sizeof(Float16) == 2);

// The master weight: the f32 whose bits are those of `weight` and `low` added.
struct HalfSplitWeight {
  Float16 weight;
  std::int32_t low = 0;
};

STOWAGE_HOST_DEVICE float joined(HalfSplitWeight split) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(split.weight)) +
                              static_cast<std::uint32_t>(split.low));
}

// The split whose weight is `master` rounded; `joined` gives every bit back.
STOWAGE_HOST_DEVICE HalfSplitWeight split_half(float master) {
  HalfSplitWeight result;
  result.weight = Float16(master);
  result.low = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(master) -
                                         std::bit_cast<std::uint32_t>(static_cast<float>(result.weight)));
  return result;
}

}  // namespace stowage
