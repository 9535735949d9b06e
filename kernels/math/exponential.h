// exp and the normal distribution, written so that a compiler vectorises them.
//
// The f32 forms are polynomials (interpolated at Chebyshev nodes), good to 2e-7 relative; the f64
// forms are the library's own functions, against which tests judge the f32 ones. On a card the f32 exp and
// quotient take the instructions that approximate 2^x and 1 / x, and are good to 4e-7.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/math/host_device.h"

namespace stowage {

// 2^x. On a card it takes one instruction, to 2 units in the last place; results below 2^-126 are 0 (exp2f
// spends four more instructions to keep them).
STOWAGE_HOST_DEVICE float power_of_two(float x) {
#ifdef __CUDA_ARCH__
  float power = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#else
  return std::exp2(x);
#endif
}

// a / b, on a card to 2 units in the last place, and 0 where b is more than 2^126: a tenth of the
// instructions of the rounded quotient.
STOWAGE_HOST_DEVICE float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  float inverse = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
#else
  return a / b;
#endif
}
STOWAGE_HOST_DEVICE double quotient(double a, double b) { return a / b; }

// e^x, clamped to x in [-87, 88]: never zero, never infinite. NaN stays NaN.
STOWAGE_HOST_DEVICE float exponential(float x) {
#ifdef __CUDA_ARCH__
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(-87.0F));
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(88.0F));
  // x log2(e) is rounded to a, which is off by a small b: 2^(a + b) is 2^a + 2^a b ln 2.
  const float rounded = __fmul_rn(x, 1.44269504F);
  const float lost = fmaf(x, 1.92596303e-8F, fmaf(x, 1.44269504F, -rounded));
  const float power = power_of_two(rounded);
  return fmaf(power, lost * 0.693147181F, power);
#else
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  const float scaled = (std::isnan(x) ? 0 : x) * 1.44269504F;  // 0 replaces NaN, which no integer holds
  const auto power = static_cast<std::int32_t>(scaled + (scaled < 0 ? -0.5F : 0.5F));
  const auto whole = static_cast<float>(power);
  // ln 2 in two parts, the first of few bits, so that the remainder is exact.
  const float r = (x - whole * 0.693359375F) + whole * 2.12194440e-4F;
  float series = 1.3926926612e-3F;
  series = series * r + 8.3637738743e-3F;
  series = series * r + 4.1666550110e-2F;
  series = series * r + 1.6666573382e-1F;
  series = series * r + 0.5F;
  const float fraction = (series * r) * r + r + 1.0F;
  return fraction * std::bit_cast<float>((static_cast<std::uint32_t>(power) + 127U) << 23U);
#endif
}

// e^x in f64, never infinite either.
STOWAGE_HOST_DEVICE double exponential(double x) { return std::exp(x > 709.0 ? 709.0 : x); }

// The standard normal distribution at x: its density, and the probability of less than x.
template <class T>
struct Normal {
  T density, cumulative;
};

STOWAGE_HOST_DEVICE Normal<float> normal(float x) {
  const float bell = exponential(-0.5F * x * x);
  const float y = std::fabs(x) * 0.707106781F;
  const float t = quotient(1.0F, 1.0F + 0.5F * y);
  // erfc(y) = bell * t * series(t) for y in [0, 10]
  float series = -0.059714919F;
  series = series * t + 0.28776831F;
  series = series * t - 0.493863649F;
  series = series * t + 0.285697711F;
  series = series * t - 0.0318417576F;
  series = series * t + 0.204853655F;
  series = series * t + 0.242572893F;
  series = series * t + 0.282445042F;
  series = series * t + 0.282082674F;
  const float tail = 0.5F * bell * (t * series);
  return {bell * 0.398942280F, x < 0 ? tail : 1.0F - tail};
}

STOWAGE_HOST_DEVICE Normal<double> normal(double x) {
  return {std::exp(-0.5 * x * x) * 0.39894228040143267794, 0.5 * std::erfc(-x * 0.70710678118654752440)};
}

}  // namespace stowage
