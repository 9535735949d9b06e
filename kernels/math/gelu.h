// GELU (Hendrycks & Gimpel, "Gaussian Error Linear Units") in both of its forms, and its derivative.
#pragma once

#include "kernels/math/exponential.h"
#include "kernels/math/host_device.h"

namespace stowage {

// x * Phi(x)
struct GeluErf {
  template <class T>
  STOWAGE_HOST_DEVICE static T value(T x) {
    return x * normal(x).cumulative;
  }
  template <class T>
  STOWAGE_HOST_DEVICE static T derivative(T x) {
    const Normal<T> at = normal(x);
    return at.cumulative + x * at.density;
  }
};

// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
struct GeluTanh {
  template <class T>
  STOWAGE_HOST_DEVICE static T gate(T x) {
    constexpr T twice = static_cast<T>(1.59576912160573071176);
    const T u2 = twice * (x + static_cast<T>(0.044715) * x * x * x);
    return 1 / (1 + exponential(-u2));
  }
  template <class T>
  STOWAGE_HOST_DEVICE static T value(T x) {
    return x * gate(x);
  }
  template <class T>
  STOWAGE_HOST_DEVICE static T derivative(T x) {
    constexpr T twice = static_cast<T>(1.59576912160573071176);
    const T g = gate(x);
    const T slope = twice * (1 + static_cast<T>(3 * 0.044715) * x * x);
    return g + x * g * (1 - g) * slope;
  }
};

}  // namespace stowage
