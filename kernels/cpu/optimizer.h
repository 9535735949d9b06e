// The update phase: norm of the gradients, clipping, AdamW. Runs on either side of the link.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/math/adamw.h"
#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"

namespace stowage::cpu {

// Sum of squares in f64, by chunks that depend on `count` alone, added in order.
template <class T>
double square_sum(std::int64_t count, const T* x);
// sums[p], p < pieces: square_sum of the elements [p * piece, (p + 1) * piece) below `count`; 0 if there
// are none.
template <class T>
void square_sum(std::int64_t count, const T* x, std::int64_t pieces, std::int64_t piece, double* sums);

// Returns the sum of all elements of `sums`, arrays of `pieces` elements, a power of two. For each p,
// elements p are added up in the order of `sums`; then these totals in a balanced tree of adjacent
// pairs (stowage/tree_sum.h).
double norm_part(std::span<const double* const> sums, std::int64_t pieces);
// totals[p], p < pieces: the elements p of `sums`, added up in that order.
void add_pieces(std::span<const double* const> sums, std::int64_t pieces, double* totals);

// The norm: sqrt of the parts' sum, added in the order of the calls, over the loss scale.
class ClippedNorm {
 public:
  explicit ClippedNorm(double loss_scale = 1) : loss_scale_(loss_scale) {}
  void add(double square_sum) { sum_ += square_sum; }
  double norm() const { return std::sqrt(sum_) / loss_scale_; }
  // Returns the gradients' factor: 1, or less if `limit` > 0 is below the norm.
  double scale(double limit) const { return limit > 0 && norm() > limit ? limit / norm() : 1; }

 private:
  double loss_scale_;
  double sum_ = 0;
};

// Operands of one tensor's update. The outputs may be the very inputs.
template <class T>
struct AdamWOperands {
  const T *parameter, *gradient, *first_moment, *second_moment;
  T *new_parameter, *new_first_moment, *new_second_moment;
};
template <class T>
AdamWOperands<T> from_element(std::int64_t i, const AdamWOperands<T>& of) {
  return {of.parameter + i,     of.gradient + i,         of.first_moment + i,     of.second_moment + i,
          of.new_parameter + i, of.new_first_moment + i, of.new_second_moment + i};
}
template <class T>
void adamw(const AdamWSettings& settings, double gradient_scale, std::int64_t count,
           const AdamWOperands<T>& operands);

// Operands for a weight of a narrow type T, which `low` completes to an f32: arithmetic in f32,
// gradients widened.
template <class T>
struct SplitOperands {
  using Low = std::conditional_t<std::is_same_v<T, Bfloat16>, std::int16_t, std::int32_t>;

  const T *parameter, *gradient;
  const Low* low;
  const float *first_moment, *second_moment;
  T* new_parameter;
  Low* new_low;
  float *new_first_moment, *new_second_moment;
};
using SplitAdamWOperands = SplitOperands<Bfloat16>;
using HalfAdamWOperands = SplitOperands<Float16>;
template <class T>
SplitOperands<T> from_element(std::int64_t i, const SplitOperands<T>& of) {
  return {of.parameter + i,    of.gradient + i,         of.low + i,
          of.first_moment + i, of.second_moment + i,    of.new_parameter + i,
          of.new_low + i,      of.new_first_moment + i, of.new_second_moment + i};
}
template <class T>
void adamw(const AdamWSettings& settings, double gradient_scale, std::int64_t count,
           const SplitOperands<T>& operands);

}  // namespace stowage::cpu
