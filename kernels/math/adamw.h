// AdamW of one element (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", algorithm 2).
//
// The weight is rounded once, by the last subtraction: decaying it first and subtracting the rest then would
// round it twice, and end about two and a half times as far from the update in f64.
//
// Host and device agree to the last bit if contraction is off (-ffp-contract=off, -fmad=false).
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/math/host_device.h"

namespace stowage {

struct AdamWSettings {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;
  double learning_rate = 1e-3;
  std::uint64_t step = 0;  // number of the update, from 0
};

// Constants of all elements, in the type of the update.
template <class T>
struct AdamWConstants {
  T beta1, one_minus_beta1, beta2, one_minus_beta2;
  T correction1, correction2;  // both 1 - beta^(step + 1)
  T epsilon, weight_decay, learning_rate;
  T scale;  // the gradient's factor, from clipping

  AdamWConstants() = default;  // indeterminate
  AdamWConstants(const AdamWSettings& settings, double gradient_scale)
      : beta1(static_cast<T>(settings.beta1)),
        one_minus_beta1(static_cast<T>(1 - settings.beta1)),
        beta2(static_cast<T>(settings.beta2)),
        one_minus_beta2(static_cast<T>(1 - settings.beta2)),
        correction1(static_cast<T>(1 - std::pow(settings.beta1, static_cast<double>(settings.step) + 1))),
        correction2(static_cast<T>(1 - std::pow(settings.beta2, static_cast<double>(settings.step) + 1))),
        epsilon(static_cast<T>(settings.epsilon)),
        weight_decay(static_cast<T>(settings.weight_decay)),
        learning_rate(static_cast<T>(settings.learning_rate)),
        scale(static_cast<T>(gradient_scale)) {}
};

template <class T>
struct AdamWElement {
  T parameter, first_moment, second_moment;
};

template <class T>
STOWAGE_HOST_DEVICE AdamWElement<T> adamw_update(const AdamWConstants<T>& constants, AdamWElement<T> element,
                                                 T gradient) {
  const T g = gradient * constants.scale;
  const T m = constants.beta1 * element.first_moment + constants.one_minus_beta1 * g;
  const T v = constants.beta2 * element.second_moment + constants.one_minus_beta2 * g * g;
  const T corrected_m = m / constants.correction1;
  const T corrected_v = v / constants.correction2;
  const T change =
      corrected_m / (std::sqrt(corrected_v) + constants.epsilon) + constants.weight_decay * element.parameter;
  return {element.parameter - constants.learning_rate * change, m, v};
}

}  // namespace stowage
