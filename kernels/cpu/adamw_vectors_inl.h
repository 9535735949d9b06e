// Vectors of AdamW's operands: reads, writes and prefetches, in f32 and with split weights. Included once for
// each instruction set (Highway's way): the guard toggles each time.
#if defined(STOWAGE_ADAMW_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef STOWAGE_ADAMW_VECTORS
#undef STOWAGE_ADAMW_VECTORS
#else
#define STOWAGE_ADAMW_VECTORS
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/cpu/optimizer.h"
#include "kernels/cpu/undo_record.h"

HWY_BEFORE_NAMESPACE();
namespace stowage::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Vectors with the machine's number of lanes, at most TileResidues::most_lanes.
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

// As Float16's conversions.
HWY_INLINE Integers widened_halves(Integers half) {
  constexpr std::uint32_t infinity = 0x7c00U << 13U, least_normal = 0x400U << 13U;
  const Floats least = floats_of(all_bits(0x38800000U));
  const Integers size = hn::ShiftLeft<13>(hn::And(half, all_bits(0x7fffU)));
  const Integers small = bits_of(hn::Sub(floats_of(hn::Add(size, bits_of(least))), least));
  const Integers finite =
      hn::IfThenElse(hn::Lt(size, all_bits(least_normal)), small, hn::Add(size, all_bits(112U << 23U)));
  const Integers quiet = hn::IfThenElseZero(hn::Gt(size, all_bits(infinity)), all_bits(0x00400000U));
  const Integers special = hn::Or(hn::Or(size, all_bits(0x7f800000U)), quiet);
  const Integers value = hn::IfThenElse(hn::Lt(size, all_bits(infinity)), finite, special);
  return hn::Or(value, hn::ShiftLeft<16>(hn::And(half, all_bits(0x8000U))));
}
HWY_INLINE Integers rounded_to_halves(Integers bits) {
  const Integers size = hn::And(bits, all_bits(0x7fffffffU)), shifted = hn::ShiftRight<13>(size);
  const Integers odd = hn::And(shifted, all_bits(1));
  const Integers normal =
      hn::ShiftRight<13>(hn::Add(hn::Sub(size, all_bits(112U << 23U)), hn::Add(odd, all_bits(0xfffU))));
  const Floats half = all(0.5F);
  const Integers small = hn::Sub(bits_of(hn::Add(floats_of(size), half)), bits_of(half));
  const Integers finite = hn::IfThenElse(hn::Lt(size, all_bits(0x38800000U)), small, normal);
  const Integers numbers = hn::IfThenElse(hn::Lt(size, all_bits(0x477ff000U)), finite, all_bits(0x7c00U));
  const Integers nan = hn::Or(hn::And(shifted, all_bits(0x3ffU)), all_bits(0x7e00U));
  const Integers value = hn::IfThenElse(hn::Gt(size, all_bits(0x7f800000U)), nan, numbers);
  return hn::Or(value, hn::And(hn::ShiftRight<16>(bits), all_bits(0x8000U)));
}
HWY_INLINE Integers widened_halves(const Float16* from) {
  return widened_halves(hn::PromoteTo(bits_tag, hn::LoadU(Half(), &from->bits)));
}
HWY_INLINE Floats parameter(const HalfAdamWOperands& of, std::int64_t i) {
  const Integers low = hn::BitCast(bits_tag, hn::LoadU(SignedBits(), of.low + i));
  return floats_of(hn::Add(widened_halves(of.parameter + i), low));
}
HWY_INLINE Floats gradient(const HalfAdamWOperands& of, std::int64_t i) {
  return floats_of(widened_halves(of.gradient + i));
}
// As split_half.
HWY_INLINE void set_parameter(const HalfAdamWOperands& of, std::int64_t i, Floats value) {
  const Integers half = rounded_to_halves(bits_of(value));
  const Integers low = hn::Sub(bits_of(value), widened_halves(half));
  hn::StoreU(hn::TruncateTo(Half(), half), Half(), &(of.new_parameter + i)->bits);
  hn::StoreU(hn::BitCast(SignedBits(), low), SignedBits(), of.new_low + i);
}
HWY_INLINE void restore_parameter(const HalfAdamWOperands& of, std::int64_t i, Floats value) {
  set_parameter(of, i, value);
}

// Fetches the operands at element i into the cache, a vector at a time.
HWY_INLINE void fetch(const AdamWOperands<float>& of, std::int64_t i) {
  hwy::Prefetch(of.parameter + i);
  hwy::Prefetch(of.gradient + i);
  hwy::Prefetch(of.first_moment + i);
  hwy::Prefetch(of.second_moment + i);
}
template <class T>
HWY_INLINE void fetch(const SplitOperands<T>& of, std::int64_t i) {
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

// Tail: fewer elements than a vector; buffers are padded to one.
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

template <class T>
class Padded<SplitOperands<T>> {
 public:
  Padded(const SplitOperands<T>& of, std::int64_t i, std::int64_t count) {
    std::copy_n(of.parameter + i, count, parameter_);
    std::copy_n(of.gradient + i, count, gradient_);
    std::copy_n(of.low + i, count, low_);
    std::copy_n(of.first_moment + i, count, first_moment_);
    std::copy_n(of.second_moment + i, count, second_moment_);
  }
  SplitOperands<T> operands() {
    return {parameter_, gradient_, low_,          first_moment_, second_moment_,
            parameter_, low_,      first_moment_, second_moment_};
  }
  void write(const SplitOperands<T>& of, std::int64_t i, std::int64_t count) const {
    std::copy_n(parameter_, count, of.new_parameter + i);
    std::copy_n(low_, count, of.new_low + i);
    std::copy_n(first_moment_, count, of.new_first_moment + i);
    std::copy_n(second_moment_, count, of.new_second_moment + i);
  }

 private:
  T parameter_[lanes], gradient_[lanes];
  typename SplitOperands<T>::Low low_[lanes] = {};
  float first_moment_[lanes] = {}, second_moment_[lanes] = {};
};

// Distance in elements from the computed ones to the ones fetched into the cache: some hundred nanoseconds of
// work. Memory is thus busy also while a tile's residues are packed, and across the ends of tiles. Prefetches
// behind the last element do not fault.
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

}  // namespace
}  // namespace stowage::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
