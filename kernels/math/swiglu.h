// SwiGLU (Shazeer, "GLU Variants Improve Transformer") of one gate and one element that it scales, and its
// gradient.
#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/math/exponential.h"
#include "kernels/math/host_device.h"

namespace stowage {

// The sigmoid 1 / (1 + e^-x), and 1 less the sigmoid: both in [0, 1], and precise where they are near 0.
template <class T>
struct Sigmoid {
  T value, rest;
};

template <class T>
STOWAGE_HOST_DEVICE Sigmoid<T> sigmoid(T x) {
  // The exponential of f32 stops at e^-87, which times the largest x would not be small.
  constexpr T most = std::is_same_v<T, float> ? 87 : 745;
  const T size = std::fabs(x);
  const T power = exponential(-size);
  const T large = quotient(T{1}, 1 + power);
  const T small = size > most ? T{0} : power * large;
  return {x < 0 ? small : large, x < 0 ? large : small};
}

template <class T>
STOWAGE_HOST_DEVICE T swiglu(T gate, T up) {
  return gate * sigmoid(gate).value * up;
}

template <class T>
struct SwigluGradient {
  T gate, up;
};

template <class T>
STOWAGE_HOST_DEVICE SwigluGradient<T> swiglu_gradient(T gate, T up, T dy) {
  const Sigmoid<T> at = sigmoid(gate);
  const T scale = gate * at.value;
  // The derivative of `scale` is at most 1.1, so that no product overflows before the last.
  const T slope = at.value + scale * at.rest;
  return {dy * slope * up, dy * scale};
}

}  // namespace stowage
