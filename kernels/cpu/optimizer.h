// The update phase: norm of the gradients, clipping, AdamW. Runs on either side of the link.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/math/adamw.h"

namespace stowage::cpu {

// Sum of squares in f64, by chunks that depend on `count` alone, added in order.
template <class T>
double square_sum(std::int64_t count, const T* x);

struct Clip {
  double norm = 0;
  double scale = 1;
};

// norm = sqrt of the parts' sum, in order; scale = clip > 0 && norm > clip ? clip / norm : 1.
Clip clip(std::span<const double* const> parts, double limit);

// One tensor's update. The outputs may be the very inputs.
template <class T>
struct AdamWOperands {
  const T *parameter, *gradient, *first_moment, *second_moment;
  T *new_parameter, *new_first_moment, *new_second_moment;
};
template <class T>
void adamw(const AdamWSettings& settings, double gradient_scale, std::int64_t count,
           const AdamWOperands<T>& operands);

}  // namespace stowage::cpu
