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

// 0.5 x (1 + tanh(u)) = x g, g = 1 / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3)
struct GeluTanh {
  template <class T>
  STOWAGE_HOST_DEVICE static T value(T x) {
    return quotient(x, 1 + falling(x));
  }
  // 1 - g is taken as g e^-2u: subtracting would leave x (1 - g) few digits where g is near 1.
  template <class T>
  STOWAGE_HOST_DEVICE static T derivative(T x) {
    const T e = falling(x);
    const T g = quotient(T{1}, 1 + e);
    const T slope = twice<T> * (1 + static_cast<T>(3 * 0.044715) * x * x);
    return g + x * g * (e * g) * slope;
  }

 private:
  template <class T>
  static constexpr T twice = static_cast<T>(1.59576912160573071176);  // 2 sqrt(2 / pi)

  // e^-2u
  template <class T>
  STOWAGE_HOST_DEVICE static T falling(T x) {
    return exponential(-twice<T> * (x + static_cast<T>(0.044715) * x * x * x));
  }
};

}  // namespace stowage
