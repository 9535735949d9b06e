// A step of AdamW in vectors, and its inverse: estimates of the old values, and codes of the estimates'
// errors. Included once for each instruction set (Highway's way): the guard toggles each time.
#if defined(STOWAGE_ADAMW_STEP) == defined(HWY_TARGET_TOGGLE)
#ifdef STOWAGE_ADAMW_STEP
#undef STOWAGE_ADAMW_STEP
#else
#define STOWAGE_ADAMW_STEP
#endif

#include <cmath>

#include "kernels/cpu/adamw_simd.h"
#include "kernels/cpu/adamw_vectors_inl.h"

HWY_BEFORE_NAMESPACE();
namespace stowage::cpu::HWY_NAMESPACE {
namespace {

// Divides by one number with the bits of a division, in 4 operations: a quotient by the reciprocal in two
// pieces, which is off by less than one unit in the last place, and a correction by its remainder, which then
// rounds correctly (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor").
// It holds where nothing on the way underflows or overflows.
class Divisor {
 public:
  explicit Divisor(float divisor)
      : divisor_(all(divisor)),
        reciprocal_(all(1 / divisor)),
        rest_(all(static_cast<float>(1 / static_cast<double>(divisor) - static_cast<double>(1 / divisor)))),
        usable_(HWY_NATIVE_FMA != 0 && divisor >= 0x1p-30F && divisor <= 1) {}

  template <bool usual>
  HWY_INLINE Floats quotient(Floats dividend) const {
    if constexpr (usual) {
      const Floats near = hn::MulAdd(dividend, reciprocal_, hn::Mul(dividend, rest_));
      return hn::MulAdd(hn::NegMulAdd(near, divisor_, dividend), reciprocal_, near);
    } else {
      return hn::Div(dividend, divisor_);
    }
  }
  bool usable() const { return usable_; }

 private:
  Floats divisor_, reciprocal_, rest_;
  bool usable_;
};

// An update, with the values that its inverse needs.
struct Step {
  Element next;
  Floats first_part, second_part;  // the gradient's parts of the two moments
  Floats quotient;                 // first moment / (root of the second + epsilon), both corrected
};

// Computes a step in two parts, so that vectors whose moments all have usual sizes take a quicker second
// part, with the same bits.
class Update {
 public:
  explicit Update(const AdamWConstants<float>& from)
      : beta1_(all(from.beta1)),
        one_minus_beta1_(all(from.one_minus_beta1)),
        beta2_(all(from.beta2)),
        one_minus_beta2_(all(from.one_minus_beta2)),
        correction1_(from.correction1),
        correction2_(from.correction2),
        epsilon_(all(from.epsilon)),
        weight_decay_(all(from.weight_decay)),
        learning_rate_(all(from.learning_rate)),
        scale_(all(from.scale)) {}
  // An update whose usual steps are usual for Estimate too.
  explicit Update(const UndoableConstants& from) : Update(from.update) {
    constants_usual_ =
        constants_usual_ && std::isfinite(from.inverse_beta1) && std::isfinite(from.inverse_beta2);
  }

  // begin and end together compute adamw_update.
  HWY_INLINE Step begin(const Element& old, Floats gradient) const {
    Step step;
    set_parts(step, gradient);
    step.next.first_moment = hn::Add(hn::Mul(beta1_, old.first_moment), step.first_part);
    step.next.second_moment = hn::Add(hn::Mul(beta2_, old.second_moment), step.second_part);
    return step;
  }
  template <bool usual>
  HWY_INLINE void end(Step& step, Floats old_parameter) const {
    set_quotient<usual>(step);
    const Floats change = hn::Add(step.quotient, hn::Mul(weight_decay_, old_parameter));
    step.next.parameter = hn::Sub(old_parameter, hn::Mul(learning_rate_, change));
  }

  // begin_back and end_back compute the same step from the new values.
  HWY_INLINE Step begin_back(const Element& next, Floats gradient) const {
    Step step;
    step.next = next;
    set_parts(step, gradient);
    return step;
  }
  template <bool usual>
  HWY_INLINE void end_back(Step& step) const {
    set_quotient<usual>(step);
  }

  // Whether all new moments are normal numbers of 2^-90 to 2^90, and second moments positive. Then the
  // gradients were finite, no division by a correction underflows, and no estimate of the old moments is NaN.
  HWY_INLINE bool is_usual(const Step& step) const {
    constexpr std::uint32_t least = (127U - 90U) << 23U, span = 180U << 23U;
    const Integers m = hn::And(bits_of(step.next.first_moment), all_bits(0x7fffffffU));
    const Integers v = bits_of(step.next.second_moment);
    const Integers farther = hn::Max(hn::Sub(m, all_bits(least)), hn::Sub(v, all_bits(least)));
    return constants_usual_ && hn::AllTrue(bits_tag, hn::Lt(farther, all_bits(span)));
  }

 private:
  HWY_INLINE void set_parts(Step& step, Floats gradient) const {
    const Floats g = hn::Mul(gradient, scale_);
    step.first_part = hn::Mul(one_minus_beta1_, g);
    step.second_part = hn::Mul(hn::Mul(one_minus_beta2_, g), g);
  }
  template <bool usual>
  HWY_INLINE void set_quotient(Step& step) const {
    const Floats m = correction1_.quotient<usual>(step.next.first_moment);
    const Floats v = correction2_.quotient<usual>(step.next.second_moment);
    step.quotient = hn::Div(m, hn::Add(hn::Sqrt(v), epsilon_));
  }

  Floats beta1_, one_minus_beta1_, beta2_, one_minus_beta2_;
  Divisor correction1_, correction2_;
  Floats epsilon_, weight_decay_, learning_rate_, scale_;
  bool constants_usual_ = correction1_.usable() && correction2_.usable();
};

// Estimates the values before a step. Never returns NaN, whose bits differ between instruction sets.
class Estimate {
 public:
  explicit Estimate(const UndoableConstants& from)
      : inverse_beta1_(all(from.inverse_beta1)),
        inverse_beta2_(all(from.inverse_beta2)),
        inverse_decay_(all(from.inverse_decay)),
        learning_rate_(all(from.update.learning_rate)) {}

  template <bool usual>
  HWY_INLINE Element before(const Step& step) const {
    const Floats m = hn::Mul(hn::Sub(step.next.first_moment, step.first_part), inverse_beta1_);
    const Floats v = hn::Mul(hn::Sub(step.next.second_moment, step.second_part), inverse_beta2_);
    const Floats w = hn::Add(step.next.parameter, hn::Mul(learning_rate_, step.quotient));
    return {number(hn::Mul(w, inverse_decay_)), usual ? m : number(m), usual ? v : number(v)};
  }

 private:
  HWY_INLINE static Floats number(Floats value) { return hn::IfThenElseZero(hn::Eq(value, value), value); }

  Floats inverse_beta1_, inverse_beta2_, inverse_decay_, learning_rate_;
};

// Returns codes, or values above escape_code if there is no code. An old value has a code if it has the
// estimate's sign and its bits are near to the estimate's. (Values across zero are far in units in the last
// place, except for the smallest numbers.)
HWY_INLINE Integers code_or_more(Floats old, Floats estimate) {
  return hn::Add(hn::Sub(bits_of(old), bits_of(estimate)), all_bits(code_of_zero));
}
HWY_INLINE Integers old_bits(Floats estimate, Integers code) {
  return hn::Add(bits_of(estimate), hn::Sub(code, all_bits(code_of_zero)));
}

}  // namespace
}  // namespace stowage::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
