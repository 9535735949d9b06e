// Compiled once for each instruction set, by including itself. Contraction is off: the device's AdamW must
// give the same bits, and a record must be read by another instruction set than the one that wrote it.
#include "kernels/cpu/adamw_simd.h"

#include <algorithm>
#include <cmath>

// Machines without AVX2 are served by SSE4 or plain code, and nothing here gains from the last AVX-512
// extensions. Vectors of a length unknown to the compiler cannot be members of a struct.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw_simd.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "include/stowage/error.h"

HWY_BEFORE_NAMESPACE();
namespace stowage::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// As many lanes as the machine has, at most TileResidues::most_lanes.
using Float = hn::CappedTag<float, TileResidues::most_lanes>;
using Bits = hn::RebindToUnsigned<Float>;
using SignedBits = hn::RebindToSigned<Float>;
using Half = hn::Rebind<std::uint16_t, Float>;
using SignedHalf = hn::Rebind<std::int16_t, Float>;
using Byte = hn::Rebind<std::uint8_t, Float>;
using Floats = hn::Vec<Float>;
using Integers = hn::Vec<Bits>;

constexpr Float float_tag{};
constexpr Bits bits_tag{};
constexpr std::int64_t lanes = static_cast<std::int64_t>(hn::MaxLanes(Float()));

HWY_INLINE Floats all(float value) { return hn::Set(float_tag, value); }
HWY_INLINE Integers all_bits(std::uint32_t value) { return hn::Set(bits_tag, value); }
HWY_INLINE Integers bits_of(Floats values) { return hn::BitCast(bits_tag, values); }
HWY_INLINE Floats floats_of(Integers bits) { return hn::BitCast(float_tag, bits); }

// Reads and writes of one vector of elements, from i on.

HWY_INLINE Floats parameter(const AdamWOperands<float>& of, std::int64_t i) {
  return hn::LoadU(float_tag, of.parameter + i);
}
HWY_INLINE Floats gradient(const AdamWOperands<float>& of, std::int64_t i) {
  return hn::LoadU(float_tag, of.gradient + i);
}
HWY_INLINE void set_parameter(const AdamWOperands<float>& of, std::int64_t i, Floats value) {
  hn::StoreU(value, float_tag, of.new_parameter + i);
}
HWY_INLINE void restore_parameter(const AdamWOperands<float>& of, std::int64_t i, Floats value) {
  set_parameter(of, i, value);
}

HWY_INLINE Integers upper_halves(const Bfloat16* from) {
  return hn::ShiftLeft<16>(hn::PromoteTo(bits_tag, hn::LoadU(Half(), &from->bits)));
}
HWY_INLINE Floats parameter(const SplitAdamWOperands& of, std::int64_t i) {
  const auto low = hn::PromoteTo(SignedBits(), hn::LoadU(SignedHalf(), of.low + i));
  return floats_of(hn::Add(upper_halves(of.parameter + i), hn::BitCast(bits_tag, low)));
}
HWY_INLINE Floats gradient(const SplitAdamWOperands& of, std::int64_t i) {
  return floats_of(upper_halves(of.gradient + i));
}
// As split_of_bits.
HWY_INLINE void restore_parameter(const SplitAdamWOperands& of, std::int64_t i, Floats value) {
  const Integers bits = bits_of(value);
  const Integers high = hn::ShiftRight<16>(hn::Add(bits, all_bits(0x8000U)));
  hn::StoreU(hn::TruncateTo(Half(), high), Half(), &(of.new_parameter + i)->bits);
  hn::StoreU(hn::BitCast(SignedHalf(), hn::TruncateTo(Half(), bits)), SignedHalf(), of.new_low + i);
}
// As split.
HWY_INLINE void set_parameter(const SplitAdamWOperands& of, std::int64_t i, Floats value) {
  const Floats nan = floats_of(all_bits(0x7fc00000U));
  restore_parameter(of, i, hn::IfThenElse(hn::Eq(value, value), value, nan));
}

// Fetches into the cache what is at element i, for a vector at a time.
HWY_INLINE void fetch(const AdamWOperands<float>& of, std::int64_t i) {
  hwy::Prefetch(of.parameter + i);
  hwy::Prefetch(of.gradient + i);
  hwy::Prefetch(of.first_moment + i);
  hwy::Prefetch(of.second_moment + i);
}
HWY_INLINE void fetch(const SplitAdamWOperands& of, std::int64_t i) {
  hwy::Prefetch(of.parameter + i);
  hwy::Prefetch(of.gradient + i);
  hwy::Prefetch(of.low + i);
  hwy::Prefetch(of.first_moment + i);
  hwy::Prefetch(of.second_moment + i);
}

struct Element {
  Floats parameter, first_moment, second_moment;
};

template <class Operands>
HWY_INLINE Element element(const Operands& of, std::int64_t i) {
  return {parameter(of, i), hn::LoadU(float_tag, of.first_moment + i),
          hn::LoadU(float_tag, of.second_moment + i)};
}
template <class Operands>
HWY_INLINE void set_moments(const Operands& of, std::int64_t i, const Element& next) {
  hn::StoreU(next.first_moment, float_tag, of.new_first_moment + i);
  hn::StoreU(next.second_moment, float_tag, of.new_second_moment + i);
}

// Less than a vector of elements, in memory that has a whole one.
template <class Operands>
class Padded;

template <>
class Padded<AdamWOperands<float>> {
 public:
  Padded(const AdamWOperands<float>& of, std::int64_t i, std::int64_t count) {
    std::copy_n(of.parameter + i, count, parameter_);
    std::copy_n(of.gradient + i, count, gradient_);
    std::copy_n(of.first_moment + i, count, first_moment_);
    std::copy_n(of.second_moment + i, count, second_moment_);
  }
  AdamWOperands<float> operands() {
    return {parameter_, gradient_, first_moment_, second_moment_, parameter_, first_moment_, second_moment_};
  }
  void write(const AdamWOperands<float>& of, std::int64_t i, std::int64_t count) const {
    std::copy_n(parameter_, count, of.new_parameter + i);
    std::copy_n(first_moment_, count, of.new_first_moment + i);
    std::copy_n(second_moment_, count, of.new_second_moment + i);
  }

 private:
  float parameter_[lanes] = {}, gradient_[lanes] = {}, first_moment_[lanes] = {}, second_moment_[lanes] = {};
};

template <>
class Padded<SplitAdamWOperands> {
 public:
  Padded(const SplitAdamWOperands& of, std::int64_t i, std::int64_t count) {
    std::copy_n(of.parameter + i, count, parameter_);
    std::copy_n(of.gradient + i, count, gradient_);
    std::copy_n(of.low + i, count, low_);
    std::copy_n(of.first_moment + i, count, first_moment_);
    std::copy_n(of.second_moment + i, count, second_moment_);
  }
  SplitAdamWOperands operands() {
    return {parameter_, gradient_, low_,          first_moment_, second_moment_,
            parameter_, low_,      first_moment_, second_moment_};
  }
  void write(const SplitAdamWOperands& of, std::int64_t i, std::int64_t count) const {
    std::copy_n(parameter_, count, of.new_parameter + i);
    std::copy_n(low_, count, of.new_low + i);
    std::copy_n(first_moment_, count, of.new_first_moment + i);
    std::copy_n(second_moment_, count, of.new_second_moment + i);
  }

 private:
  Bfloat16 parameter_[lanes], gradient_[lanes];
  std::int16_t low_[lanes] = {};
  float first_moment_[lanes] = {}, second_moment_[lanes] = {};
};

// Elements between those that are fetched into the cache and those that are computed: some hundred
// nanoseconds of work. So memory is busy too while a tile's residues are packed, and across the ends of
// tiles. Nothing faults behind the last element.
constexpr std::int64_t fetched_ahead = 512;

// A tile's record grows by 12 bits for each element, and some for exceptions.
HWY_INLINE void fetch_soon(const TileResidues& residues, std::int64_t k) {
  hwy::Prefetch(residues.soon + k * 13 / 8);
}

// Calls body(operands, i, k) for each vector: its elements are at i of `operands`, and the first of them is
// element k.
template <class Operands, class Body>
HWY_INLINE void for_each_vector(std::int64_t count, const Operands& of, Body& body) {
  std::int64_t k = 0;
  for (; k + lanes <= count; k += lanes) {
    fetch(of, k + fetched_ahead);
    body(of, k, k);
  }
  if (k == count) return;
  Padded<Operands> padded(of, k, count - k);
  body(padded.operands(), 0, k);
  padded.write(of, k, count - k);
}

// Divides by one number with the bits of a division, in 4 operations: a quotient by the reciprocal in two
// pieces, which is off by less than one unit in the last place, and a correction by its remainder, which then
// rounds correctly (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor",
// theorem 7). It holds where nothing on the way underflows or overflows.
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

// An update, with those of its values that the way back needs.
struct Step {
  Element next;
  Floats first_part, second_part;  // the gradient's share of the moments
  Floats quotient;                 // of the corrected moments
};

// A step is computed in two parts, so that vectors whose moments all have usual sizes take a quicker second
// one. It gives the same bits.
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
  // One whose usual steps are usual for Estimate too.
  explicit Update(const UndoableConstants& from) : Update(from.update) {
    constants_usual_ =
        constants_usual_ && std::isfinite(from.inverse_beta1) && std::isfinite(from.inverse_beta2);
  }

  // Together as adamw_update.
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

  // The same step, from the values behind it.
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

  // Whether all moments behind the step are normal numbers of 2^-90 to 2^90, and second ones positive. Then
  // the gradients were finite, no division by a correction underflows, and an estimate of the old moments is
  // no NaN.
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

// The way back: nearly the values before a step. Never NaN, whose bits differ from one instruction set to
// another.
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

// Codes, or more than escape_code where there is none: old values of the estimate's sign whose bits are near
// to its bits have one. (Those across zero are far in units in the last place but for the smallest of
// numbers.)
HWY_INLINE Integers code_or_more(Floats old, Floats estimate) {
  return hn::Add(hn::Sub(bits_of(old), bits_of(estimate)), all_bits(code_of_zero));
}
HWY_INLINE Integers old_bits(Floats estimate, Integers code) {
  return hn::Add(bits_of(estimate), hn::Sub(code, all_bits(code_of_zero)));
}

template <class Operands>
class UpdateBody {
 public:
  explicit UpdateBody(const AdamWConstants<float>& constants) : update_(constants) {}

  HWY_INLINE void operator()(const Operands& of, std::int64_t i, std::int64_t) const {
    const Element old = element(of, i);
    Step step = update_.begin(old, gradient(of, i));
    if (HWY_LIKELY(update_.is_usual(step))) {
      update_.end<true>(step, old.parameter);
    } else {
      update_.end<false>(step, old.parameter);
    }
    set_parameter(of, i, step.next.parameter);
    set_moments(of, i, step.next);
  }

 private:
  Update update_;
};

template <class Operands>
class UndoableBody {
 public:
  UndoableBody(const UndoableConstants& constants, TileResidues& residues)
      : update_(constants), estimate_(constants), residues_(residues) {
    for (std::int64_t& count : residues_.exception_count) count = 0;
  }

  HWY_INLINE void operator()(const Operands& of, std::int64_t i, std::int64_t k) {
    const Element old = element(of, i);
    const Floats g = gradient(of, i);
    Step step = update_.begin(old, g);
    if (HWY_LIKELY(update_.is_usual(step))) {
      end<true>(of, i, k, old, step);
    } else {
      largest_ = hn::Max(largest_, hn::And(bits_of(g), all_bits(0x7fffffffU)));
      end<false>(of, i, k, old, step);
    }
  }

  // Of all gradients: usual steps come of no others.
  bool finite() const { return hn::AllTrue(bits_tag, hn::Lt(largest_, all_bits(0x7f800000U))); }

 private:
  template <bool usual>
  HWY_INLINE void end(const Operands& of, std::int64_t i, std::int64_t k, const Element& old, Step& step) {
    update_.template end<usual>(step, old.parameter);
    set_parameter(of, i, step.next.parameter);
    set_moments(of, i, step.next);
    const Element estimate = estimate_.template before<usual>(step);
    const Integers m = code_or_more(old.first_moment, estimate.first_moment);
    const Integers v = code_or_more(old.second_moment, estimate.second_moment);
    const Integers w = code_or_more(old.parameter, estimate.parameter);
    fetch_soon(residues_, k);
    set_codes(Restored::first_moment, k, m);
    set_codes(Restored::second_moment, k, v);
    set_codes(Restored::parameter, k, w);
    const Integers most = hn::Max(hn::Max(m, v), w);
    if (HWY_LIKELY(hn::AllTrue(bits_tag, hn::Lt(most, all_bits(escape_code))))) return;
    add_exceptions(Restored::first_moment, k, m, old.first_moment);
    add_exceptions(Restored::second_moment, k, v, old.second_moment);
    add_exceptions(Restored::parameter, k, w, old.parameter);
  }

  HWY_INLINE void set_codes(Restored value, std::int64_t k, Integers codes) {
    hn::StoreU(hn::TruncateTo(Byte(), codes), Byte(), residues_.codes[static_cast<int>(value)] + k);
  }
  HWY_INLINE void add_exceptions(Restored value, std::int64_t k, Integers codes, Floats old) {
    const Integers limited = hn::Min(codes, all_bits(escape_code));
    const auto where = hn::Eq(limited, all_bits(escape_code));
    set_codes(value, k, limited);
    std::int64_t& count = residues_.exception_count[static_cast<int>(value)];
    std::uint32_t* end = residues_.exceptions[static_cast<int>(value)] + count;
    hn::StoreU(hn::Compress(bits_of(old), where), bits_tag, end);
    count += static_cast<std::int64_t>(hn::CountTrue(bits_tag, where));
  }

  Update update_;
  Estimate estimate_;
  TileResidues& residues_;
  Integers largest_ = hn::Zero(bits_tag);
};

// Computes old values, vector after vector of a tile.
class WayBack {
 public:
  WayBack(const UndoableConstants& constants, const TileResidues& residues)
      : update_(constants), estimate_(constants), residues_(residues) {
    for (int value = 0; value < restored_values; ++value) next_exception_[value] = residues.exceptions[value];
  }

  HWY_INLINE Element old(const Element& next, Floats gradient, std::int64_t k) {
    fetch_soon(residues_, k);
    const Element estimate = estimate_before(update_.begin_back(next, gradient));
    return {corrected(Restored::parameter, estimate.parameter, k),
            corrected(Restored::first_moment, estimate.first_moment, k),
            corrected(Restored::second_moment, estimate.second_moment, k)};
  }

 private:
  HWY_INLINE Element estimate_before(Step step) const {
    if (HWY_LIKELY(update_.is_usual(step))) {
      update_.end_back<true>(step);
      return estimate_.before<true>(step);
    }
    update_.end_back<false>(step);
    return estimate_.before<false>(step);
  }
  HWY_INLINE Floats corrected(Restored value, Floats estimate, std::int64_t k) {
    const std::uint8_t* bytes = residues_.codes[static_cast<int>(value)] + k;
    const Integers codes = hn::PromoteTo(bits_tag, hn::LoadU(Byte(), bytes));
    const Integers old = old_bits(estimate, codes);
    if (HWY_LIKELY(hn::AllFalse(bits_tag, hn::Eq(codes, all_bits(escape_code))))) return floats_of(old);
    std::uint32_t each[lanes];
    hn::StoreU(old, bits_tag, each);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      if (bytes[lane] == escape_code) each[lane] = *next_exception_[static_cast<int>(value)]++;
    }
    return floats_of(hn::LoadU(bits_tag, each));
  }

  Update update_;
  Estimate estimate_;
  const TileResidues& residues_;
  const std::uint32_t* next_exception_[restored_values];
};

template <class Operands>
class TakeBackBody {
 public:
  TakeBackBody(const UndoableConstants& constants, const TileResidues& residues)
      : way_back_(constants, residues) {}

  HWY_INLINE void operator()(const Operands& of, std::int64_t i, std::int64_t k) {
    const Element old = way_back_.old(element(of, i), gradient(of, i), k);
    restore_parameter(of, i, old.parameter);
    set_moments(of, i, old);
  }

 private:
  WayBack way_back_;
};

template <class Operands>
class UpdateAgainBody {
 public:
  UpdateAgainBody(const UndoableConstants& wrong, const AdamWConstants<float>& right,
                  const TileResidues& residues)
      : way_back_(wrong, residues), right_(right) {}

  HWY_INLINE void operator()(const Operands& of, std::int64_t i, std::int64_t k) {
    const Floats g = gradient(of, i);
    const Element old = way_back_.old(element(of, i), g, k);
    Step step = right_.begin(old, g);
    if (HWY_LIKELY(right_.is_usual(step))) {
      right_.end<true>(step, old.parameter);
    } else {
      right_.end<false>(step, old.parameter);
    }
    set_parameter(of, i, step.next.parameter);
    set_moments(of, i, step.next);
  }

 private:
  WayBack way_back_;
  Update right_;
};

template <class Operands>
void update_elements(const AdamWConstants<float>& constants, std::int64_t count, const Operands& operands) {
  UpdateBody<Operands> body(constants);
  for_each_vector(count, operands, body);
}

template <class Operands>
bool update_undoably(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
                     TileResidues& residues) {
  UndoableBody<Operands> body(constants, residues);
  for_each_vector(count, operands, body);
  // Shares a byte of the record with the last element's if count is odd.
  for (auto& codes : residues.codes) codes[count] = code_of_zero;
  return body.finite();
}

template <class Operands>
void take_back(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
               const TileResidues& residues) {
  TakeBackBody<Operands> body(constants, residues);
  for_each_vector(count, operands, body);
}

template <class Operands>
void update_again(const UndoableConstants& wrong, const AdamWConstants<float>& right, std::int64_t count,
                  const Operands& operands, const TileResidues& residues) {
  UpdateAgainBody<Operands> body(wrong, right, residues);
  for_each_vector(count, operands, body);
}

// The functions of one instruction set.
template <class Operands>
const UpdateFunctions<Operands> functions_for = {hwy::TargetName(HWY_TARGET), update_elements<Operands>,
                                                 update_undoably<Operands>, take_back<Operands>,
                                                 update_again<Operands>};

const UpdateFunctions<AdamWOperands<float>>* f32_functions() { return &functions_for<AdamWOperands<float>>; }
const UpdateFunctions<SplitAdamWOperands>* split_functions() { return &functions_for<SplitAdamWOperands>; }

}  // namespace
}  // namespace stowage::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stowage::cpu {
namespace {

HWY_EXPORT(f32_functions);
HWY_EXPORT(split_functions);

const UpdateFunctions<AdamWOperands<float>>& functions(const AdamWOperands<float>&) {
  return *HWY_DYNAMIC_DISPATCH(f32_functions)();
}
const UpdateFunctions<SplitAdamWOperands>& functions(const SplitAdamWOperands&) {
  return *HWY_DYNAMIC_DISPATCH(split_functions)();
}

}  // namespace

template <class Operands>
void update_elements(const AdamWConstants<float>& constants, std::int64_t count, const Operands& operands) {
  functions(operands).update_elements(constants, count, operands);
}

template <class Operands>
bool update_undoably(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
                     TileResidues& residues) {
  return functions(operands).update_undoably(constants, count, operands, residues);
}

template <class Operands>
void take_back(const UndoableConstants& constants, std::int64_t count, const Operands& operands,
               const TileResidues& residues) {
  functions(operands).take_back(constants, count, operands, residues);
}

template <class Operands>
void update_again(const UndoableConstants& wrong, const AdamWConstants<float>& right, std::int64_t count,
                  const Operands& operands, const TileResidues& residues) {
  functions(operands).update_again(wrong, right, count, operands, residues);
}

template void update_elements(const AdamWConstants<float>&, std::int64_t, const AdamWOperands<float>&);
template void update_elements(const AdamWConstants<float>&, std::int64_t, const SplitAdamWOperands&);
template bool update_undoably(const UndoableConstants&, std::int64_t, const AdamWOperands<float>&,
                              TileResidues&);
template bool update_undoably(const UndoableConstants&, std::int64_t, const SplitAdamWOperands&,
                              TileResidues&);
template void take_back(const UndoableConstants&, std::int64_t, const AdamWOperands<float>&,
                        const TileResidues&);
template void take_back(const UndoableConstants&, std::int64_t, const SplitAdamWOperands&,
                        const TileResidues&);
template void update_again(const UndoableConstants&, const AdamWConstants<float>&, std::int64_t,
                           const AdamWOperands<float>&, const TileResidues&);
template void update_again(const UndoableConstants&, const AdamWConstants<float>&, std::int64_t,
                           const SplitAdamWOperands&, const TileResidues&);

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (std::int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0; left &= left - 1) {
    names.emplace_back(hwy::TargetName(left & -left));
  }
  return names;
}

std::string instruction_set_in_use() { return functions(AdamWOperands<float>{}).instruction_set; }

void use_instruction_set(const std::string& name) {
  std::int64_t chosen = hwy::SupportedTargets();
  if (!name.empty()) {
    std::int64_t left = chosen & HWY_TARGETS;
    while (left != 0 && hwy::TargetName(left & -left) != name) left &= left - 1;
    if (left == 0) throw InvalidInput("no instruction set '" + name + "' here");
    chosen = left & -left;
  }
  hwy::GetChosenTarget().Update(chosen);
}

}  // namespace stowage::cpu
#endif
