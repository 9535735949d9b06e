// sin and cos, with the same bits on every instruction set and card: sums and products of f64 alone, in one
// order. Requires a file that is compiled without contraction (-ffp-contract=off, -fmad=false).
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/math/host_device.h"

namespace stowage {

template <class T>
struct SineCosine {
  T sine, cosine;
};

// Taylor series on [-pi/4, pi/4]: the terms left out are below 2^-53 of the result.
STOWAGE_HOST_DEVICE double sine_near_zero(double x) {
  const double square = x * x;
  double series = -1.0 / 1307674368000;  // -1 / 15!
  series = series * square + 1.0 / 6227020800;
  series = series * square - 1.0 / 39916800;
  series = series * square + 1.0 / 362880;
  series = series * square - 1.0 / 5040;
  series = series * square + 1.0 / 120;
  series = series * square - 1.0 / 6;
  return x + x * square * series;
}
STOWAGE_HOST_DEVICE double cosine_near_zero(double x) {
  const double square = x * x;
  double series = 1.0 / 20922789888000;  // 1 / 16!
  series = series * square - 1.0 / 87178291200;
  series = series * square + 1.0 / 479001600;
  series = series * square - 1.0 / 3628800;
  series = series * square + 1.0 / 40320;
  series = series * square - 1.0 / 720;
  series = series * square + 1.0 / 24;
  return (1 - 0.5 * square) + square * square * series;
}

// Good to 2^-52 for angles up to 2^20, and never far from the unit circle up to 2^33. No branches, so that
// loops over angles are vectorised.
STOWAGE_HOST_DEVICE SineCosine<double> sine_cosine(double angle) {
  // Adding 1.5 * 2^52 rounds to a whole number, and leaves that number in the sum's lowest bits.
  constexpr double rounder = 0x1.8p52;
  const double shifted = angle * 0x1.45f306dc9c883p-1 + rounder;  // 2 / pi
  const double quarters = shifted - rounder;
  // pi / 2 in two parts, the first of so few bits that its product with up to 2^20 quarters is exact.
  const double rest = (angle - quarters * 0x1.921fb544p0) - quarters * 0x1.0b4611a626331p-34;
  const double sine = sine_near_zero(rest);
  const double cosine = cosine_near_zero(rest);
  const auto quadrant = std::bit_cast<std::uint64_t>(shifted);
  const bool swapped = (quadrant & 1U) != 0;
  const double a = swapped ? cosine : sine;
  const double b = swapped ? sine : cosine;
  return {(quadrant & 2U) != 0 ? -a : a, ((quadrant + 1) & 2U) != 0 ? -b : b};
}

}  // namespace stowage
