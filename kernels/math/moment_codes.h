// Codes of 8-bit moments, and the rounding of bf16 moments. Host and device give the same bits.
//
// A code is a share of its block's largest magnitude, after the dynamic tree data type of Dettmers et al.
// ("8-bit Optimizers via Block-wise Quantization", section 1.3): E leading zero bits are a factor of 10^-E,
// then stands a one, and the bits behind it are a fraction that divides [0.1, 1) evenly:
//
//     0 0 1 f f f f    10^-2 * (0.1 + 0.9 * (ffff + 1/2) / 16)
//
// Code 0 (all zeros) is 0 and the last code (all ones) is 1, so that 0 and the largest magnitude are kept
// exactly. A first moment is a sign and 7 such bits, a second moment 8 such bits. A share takes the nearest
// code, the smaller of two equally near ones, with one exception: a second moment above 0 has a code above 0,
// since the step divides by its root.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "kernels/math/bfloat16.h"
#include "kernels/math/host_device.h"
#include "kernels/math/philox.h"

namespace stowage {

inline constexpr int first_moment_bits = 7, second_moment_bits = 8;  // bits of a magnitude

// Returns the share that a code of `bits` bits stands for.
STOWAGE_HOST_DEVICE constexpr float share_of_code(int bits, int code) {
  if (code == 0 || code == (1 << bits) - 1) return code == 0 ? 0.0F : 1.0F;
  double power = 1;  // 10^-E
  int first = 1 << (bits - 1);
  for (; first > code; first /= 2) power /= 10;
  return static_cast<float>(power * (0.1 + 0.9 * (code - first + 0.5) / first));
}
// The boundary midway between the shares of `code` and the next one. The last code has no boundary behind it.
STOWAGE_HOST_DEVICE constexpr float boundary_of_code(int bits, int code) {
  if (code == (1 << bits) - 1) return std::numeric_limits<float>::infinity();
  return static_cast<float>(
      (static_cast<double>(share_of_code(bits, code)) + static_cast<double>(share_of_code(bits, code + 1))) /
      2);
}

// Returns the code of a share in [0, 1]: the number of boundaries below it. A NaN has the last code.
// `boundaries`: of all codes.
template <int bits>
STOWAGE_HOST_DEVICE std::uint32_t code_of_share(const float* boundaries, float share) {
  std::uint32_t code = 0;
  for (std::uint32_t step = 1U << (bits - 1); step > 0; step /= 2) {
    if (!(boundaries[code + step - 1] >= share)) code += step;
  }
  return code;
}

// The magnitude's bits, which order like magnitudes, with NaN as the greatest.
STOWAGE_HOST_DEVICE std::uint32_t magnitude_bits(float value) {
  return std::bit_cast<std::uint32_t>(value) & 0x7fffffffU;
}

// Returns a moment from its code and the block's largest magnitude. `shares`: of all codes.
STOWAGE_HOST_DEVICE float first_moment_of(const float* shares, std::uint8_t code, float largest) {
  const float magnitude = shares[code & 0x7fU] * largest;
  return (code & 0x80U) != 0 ? -magnitude : magnitude;
}
STOWAGE_HOST_DEVICE float second_moment_of(const float* shares, std::uint8_t code, float largest) {
  return shares[code] * largest;
}

// A moment's code. Blocks of zeros have zeros.
STOWAGE_HOST_DEVICE std::uint8_t first_moment_code(const float* boundaries, float moment, float largest) {
  if (largest == 0) return 0;
  const float share = std::bit_cast<float>(magnitude_bits(moment)) / largest;
  const std::uint32_t magnitude = code_of_share<first_moment_bits>(boundaries, share);
  return static_cast<std::uint8_t>(magnitude > 0 && moment < 0 ? magnitude | 0x80U : magnitude);
}
STOWAGE_HOST_DEVICE std::uint8_t second_moment_code(const float* boundaries, float moment, float largest) {
  if (largest == 0) return 0;
  const std::uint32_t code = code_of_share<second_moment_bits>(boundaries, moment / largest);
  return static_cast<std::uint8_t>(code == 0 && moment > 0 ? 1 : code);
}

// Rounds up with the probability of the part that bf16 does not hold, else towards zero. With beta2 near 1 a
// second moment changes by less than half of bf16's last place: rounded to the nearest it would not change at
// all. `draw` is uniform in [0, 2^16).
STOWAGE_HOST_DEVICE Bfloat16 rounded_by_chance(float value, std::uint32_t draw) {
  const auto all = std::bit_cast<std::uint32_t>(value);
  if ((all & 0x7f800000U) == 0x7f800000U) return Bfloat16(value);
  Bfloat16 result;
  result.bits = static_cast<std::uint16_t>((all + draw) >> 16U);
  return result;
}

// Returns the draw of element `element` of a parameter from random_words(stream, element / 8), which eight
// neighbours share. Selects without an index: an array that is indexed at run time lies in a device's
// local memory.
STOWAGE_HOST_DEVICE std::uint32_t rounding_draw(const r123::Philox4x32::ctr_type& words,
                                                std::uint64_t element) {
  const std::uint64_t which = element % 8 / 2;
  const std::uint32_t low = which == 0 ? words.v[0] : words.v[1], high = which == 2 ? words.v[2] : words.v[3];
  const std::uint32_t word = which < 2 ? low : high;
  return element % 2 == 0 ? word & 0xffffU : word >> 16U;
}

}  // namespace stowage
