// Codes of 4 or 8 bits for groups of 256 numbers: which levels a group's header gives them, and which level a
// value takes. Host and device give the same bits if contraction is off (-ffp-contract=off, -fmad=false).
//
// A header is a scale of 16 bits and a place of 8. Without its sign bit the scale is a bf16 number R > 0,
// about the group's largest magnitude; the sign bit says the kind of the levels:
//
// - Uniform (0): N + 1 = 2^bits levels from t R to R in equal steps, or from -t R down to -R if the group is
//   mirrored. `place` is 64 t as a signed number of 7 bits, and the bit of "mirrored" above it.
// - Piecewise (1), after Fang et al., "Post-Training Piecewise Linear Quantization for Deep Neural Networks",
//   ECCV 2020: half of the levels divide [-p, p] evenly, the other half divide [-R, -p] and [p, R], where
//   p = R (place + 1) / 512. A code is a sign and a magnitude i; with h magnitudes on either side of p
//
//       |level|                                      inner step p / h, outer step (R - p) / (h - 1/2)
//         R ┤               •                        inner line (i + 1/2) p / h
//           │           •                            outer line, which ends in R
//         p ┤       •                                a level is the greater of both lines, since the
//           │ • • •                                  outer one is steeper
//           └─┴─┴─┴─┴───┴───┴─ i
//
// Two scales stand for whole groups, with place and codes of 0. Zero: all elements are 0 or subnormal in f32;
// all of the group decode to +0. Infinity: an element is NaN or infinite; all of the group decode to NaN.
//
// Arithmetic is in f32. Levels are computed from R divided by a power of two, and multiplied by that power at
// last, so that nothing overflows on the way. The encoder divides values likewise; group_search.h says which
// header it takes.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/math/float16.h"
#include "kernels/math/host_device.h"

namespace stowage {

struct GroupHeader {
  std::uint16_t scale = 0;
  std::uint8_t place = 0;
};
inline constexpr std::uint16_t piecewise_bit = 0x8000U, scale_of_nan = 0x7f80U, least_scale = 0x0080U,
                               greatest_scale = 0x7f7fU;
inline constexpr std::uint8_t mirrored_bit = 0x80U;

STOWAGE_HOST_DEVICE void write_header(GroupHeader header, std::byte* to) {
  to[0] = static_cast<std::byte>(header.scale);
  to[1] = static_cast<std::byte>(header.scale >> 8U);
  to[2] = static_cast<std::byte>(header.place);
}
STOWAGE_HOST_DEVICE GroupHeader read_header(const std::byte* from) {
  const std::uint32_t scale = static_cast<std::uint32_t>(from[0]) | static_cast<std::uint32_t>(from[1]) << 8U;
  return {static_cast<std::uint16_t>(scale), static_cast<std::uint8_t>(from[2])};
}

STOWAGE_HOST_DEVICE bool is_piecewise(GroupHeader header) { return (header.scale & piecewise_bit) != 0; }
STOWAGE_HOST_DEVICE bool is_nan(GroupHeader header) {
  return (header.scale & ~std::uint32_t{piecewise_bit}) >= scale_of_nan;
}
// Returns R. Requires that the header is not that of NaNs, as the next two do.
STOWAGE_HOST_DEVICE float scale_of(GroupHeader header) {
  return std::bit_cast<float>((header.scale & ~std::uint32_t{piecewise_bit}) << 16U);
}
// R = fraction_of * power_of: a number in [1, 2), and a power of two or 0.
STOWAGE_HOST_DEVICE float fraction_of(GroupHeader header) {
  return std::bit_cast<float>((header.scale & 0x7fU) << 16U | 0x3f800000U);
}
STOWAGE_HOST_DEVICE float power_of(GroupHeader header) {
  return std::bit_cast<float>((header.scale & 0x7f80U) << 16U);
}

// Rounds a number in (-2^21, 2^21) to the nearest integer, ties to even: in f32, numbers near 1.5 * 2^23 have
// no fraction.
STOWAGE_HOST_DEVICE std::int32_t nearest(float value) {
  constexpr float no_fraction = 0x1.8p23F;
  return std::bit_cast<std::int32_t>(value + no_fraction) - std::bit_cast<std::int32_t>(no_fraction);
}
STOWAGE_HOST_DEVICE std::int32_t smaller(std::int32_t a, std::int32_t b) { return a < b ? a : b; }
STOWAGE_HOST_DEVICE std::int32_t greater(std::int32_t a, std::int32_t b) { return a > b ? a : b; }
// Returns the greater of two numbers by their bits. Requires that one is positive.
STOWAGE_HOST_DEVICE float greater_by_bits(float a, float b) {
  return std::bit_cast<float>(greater(std::bit_cast<std::int32_t>(a), std::bit_cast<std::int32_t>(b)));
}
STOWAGE_HOST_DEVICE float magnitude(float value) {
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(value) & 0x7fffffff);
}

// The levels of a uniform group, divided by a power of two that makes `largest` of R.
template <int bits>
struct UniformLevels {
  float base, step;

  STOWAGE_HOST_DEVICE explicit UniformLevels(GroupHeader header)
      : UniformLevels(header, fraction_of(header)) {}
  STOWAGE_HOST_DEVICE UniformLevels(GroupHeader header, float largest) {
    const std::int32_t place = (header.place & 0x3f) - (header.place & 0x40);
    const float t = static_cast<float>(place) * (1.0F / 64);
    const float direction = (header.place & mirrored_bit) != 0 ? -largest : largest;
    base = t * direction;
    step = (1 - t) * direction / last_code;
  }
  STOWAGE_HOST_DEVICE float level(std::int32_t code) const { return base + static_cast<float>(code) * step; }

  static constexpr std::int32_t last_code = (1 << bits) - 1;
};

// How a value, divided by the same power, finds its code among the levels.
template <int bits>
struct UniformCodes {
  UniformLevels<bits> levels;
  float inverse;

  STOWAGE_HOST_DEVICE UniformCodes(GroupHeader header, float largest)
      : levels(header, largest), inverse(1 / levels.step) {}
  STOWAGE_HOST_DEVICE std::int32_t code(float value) const {
    return smaller(greater(nearest((value - levels.base) * inverse), 0), levels.last_code);
  }
  STOWAGE_HOST_DEVICE float error(float value) const { return value - levels.level(code(value)); }
};

// As UniformLevels and UniformCodes, for a piecewise group.
template <int bits>
struct PiecewiseLevels {
  float inner_step, outer_base, outer_step;

  STOWAGE_HOST_DEVICE explicit PiecewiseLevels(GroupHeader header)
      : PiecewiseLevels(header, fraction_of(header)) {}
  STOWAGE_HOST_DEVICE PiecewiseLevels(GroupHeader header, float largest) {
    const float breakpoint = largest * (static_cast<float>(header.place + 1) * (1.0F / 512));
    inner_step = breakpoint * (1.0F / half);
    outer_step = (largest - breakpoint) / (half - 0.5F);
    outer_base = largest - last_magnitude * outer_step;
  }
  STOWAGE_HOST_DEVICE float magnitude_level(std::int32_t code) const {
    const auto i = static_cast<float>(code);
    return greater_by_bits((i + 0.5F) * inner_step, outer_base + i * outer_step);
  }
  STOWAGE_HOST_DEVICE float level(std::int32_t code) const {
    const auto size = std::bit_cast<std::uint32_t>(magnitude_level(code & last_magnitude));
    return std::bit_cast<float>(size | static_cast<std::uint32_t>(code & (1 << (bits - 1))) << (32 - bits));
  }

  static constexpr std::int32_t half = 1 << (bits - 2), last_magnitude = 2 * half - 1;
};

template <int bits>
struct PiecewiseCodes {
  PiecewiseLevels<bits> levels;
  float inner_inverse, outer_inverse;

  STOWAGE_HOST_DEVICE PiecewiseCodes(GroupHeader header, float largest)
      : levels(header, largest), inner_inverse(1 / levels.inner_step), outer_inverse(1 / levels.outer_step) {}
  STOWAGE_HOST_DEVICE std::int32_t code(float value) const {
    const std::uint32_t sign = std::bit_cast<std::uint32_t>(value) >> 31U << (bits - 1);
    return magnitude_code(magnitude(value)) | static_cast<std::int32_t>(sign);
  }
  // Returns the error of the magnitude, whose square is that of the value.
  STOWAGE_HOST_DEVICE float error(float value) const {
    const float size = magnitude(value);
    return size - levels.magnitude_level(magnitude_code(size));
  }

 private:
  STOWAGE_HOST_DEVICE std::int32_t magnitude_code(float size) const {
    const std::int32_t inner = nearest(size * inner_inverse - 0.5F);
    const std::int32_t outer = nearest((size - levels.outer_base) * outer_inverse);
    return smaller(smaller(inner, outer), levels.last_magnitude);
  }
};

// Decoded values are limited to the finite numbers of the type that they are rounded to: the nearest scale
// can be greater than all of f16.
template <class T>
inline constexpr float greatest_decoded = std::numeric_limits<float>::max();
template <>
inline constexpr float greatest_decoded<Float16> = 65504;
STOWAGE_HOST_DEVICE float limited(float value, float greatest_finite) {
  const auto all = std::bit_cast<std::int32_t>(value), limit = std::bit_cast<std::int32_t>(greatest_finite);
  const auto size = static_cast<std::uint32_t>(smaller(all & 0x7fffffff, limit));
  return std::bit_cast<float>(size | (static_cast<std::uint32_t>(all) & 0x80000000U));
}

}  // namespace stowage
