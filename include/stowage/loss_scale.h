// The factor that keeps fp16 gradients inside the range of their type (Micikevicius et al., "Mixed Precision
// Training"): the loss is multiplied by it, so all gradients are, and the update divides by it. A power of
// two changes no bit but where a value would leave the range.
//
// A step whose gradients overflow changes no weight and halves the scale; after many steps in a row without
// one the scale doubles. Plain data: whoever calls Engine::step keeps it from step to step, and in
// checkpoints.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace stowage {

struct LossScale {
  static constexpr double least = 1, first = 0x1p16, most = 0x1p24;
  static constexpr std::uint64_t steps_to_double = 2000;  // the interval of PyTorch's GradScaler

  double scale = first;               // a power of two from `least` to `most`
  std::uint64_t finite_in_a_row = 0;  // steps since the scale changed or overflowed; below steps_to_double
  std::uint64_t skipped_steps = 0;    // number of all steps whose gradients overflowed

  friend bool operator==(const LossScale&, const LossScale&) = default;
};

// Returns false for values that the comments above rule out.
inline bool is_valid(const LossScale& of) {
  int exponent = 0;
  return of.scale >= LossScale::least && of.scale <= LossScale::most &&
         std::frexp(of.scale, &exponent) == 0.5 && of.finite_in_a_row < LossScale::steps_to_double;
}

// Returns the scale of the next step after a step with `of`.
inline LossScale next(const LossScale& of, bool overflowed) {
  if (overflowed) return {std::max(of.scale / 2, LossScale::least), 0, of.skipped_steps + 1};
  if (of.finite_in_a_row + 1 < LossScale::steps_to_double)
    return {of.scale, of.finite_in_a_row + 1, of.skipped_steps};
  return {std::min(of.scale * 2, LossScale::most), 0, of.skipped_steps};
}

}  // namespace stowage
