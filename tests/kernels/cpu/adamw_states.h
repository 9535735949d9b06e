// Optimizer states to update, take back and compare byte by byte, in f32 and with split weights.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cpu/adamw_simd.h"
#include "kernels/cpu/optimizer.h"

namespace stowage::cpu::test {

inline float float_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

// Bit patterns of floats that arithmetic treats specially: zeros, the least and the greatest of denormals and
// normals, ones, infinities, NaNs.
inline constexpr std::array<std::uint32_t, 14> nasty_bits = {
    0x00000000U, 0x80000000U, 0x00000001U, 0x80000001U, 0x007fffffU, 0x00800000U, 0x80800000U,
    0x3f800000U, 0xbf800000U, 0x7f7fffffU, 0xff7fffffU, 0x7f800000U, 0xff800000U, 0x7fc01234U};

// Any bits, a quarter of them nasty ones.
inline std::vector<float> any_floats(std::int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    const auto draw = static_cast<std::uint32_t>(generator());
    value = float_of(generator() % 4 == 0 ? nasty_bits[draw % nasty_bits.size()] : draw);
  }
  return values;
}

// As weights, gradients and first moments in training.
inline std::vector<float> normal_floats(std::int64_t count, unsigned seed, float deviation) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// `offset` elements stand before the first one, so that vectors are not aligned.
struct F32State {
  using Operands = AdamWOperands<float>;
  std::vector<float> parameter, gradient, first_moment, second_moment;
  std::size_t offset = 0;

  F32State(const std::vector<float>& p, const std::vector<float>& g, const std::vector<float>& m,
           const std::vector<float>& v)
      : parameter(p), gradient(g), first_moment(m), second_moment(v) {}

  std::int64_t count() const { return static_cast<std::int64_t>(parameter.size() - offset); }
  void set_gradient(const std::vector<float>& g) { gradient = g; }
  Operands operands() {
    float *p = parameter.data() + offset, *m = first_moment.data() + offset,
          *v = second_moment.data() + offset;
    return {p, gradient.data() + offset, m, v, p, m, v};
  }
  // The reference: kernels/math/adamw.h, element by element.
  void update_plainly(const AdamWConstants<float>& constants) {
    for (std::size_t i = offset; i < parameter.size(); ++i) {
      const auto next =
          adamw_update(constants, {parameter[i], first_moment[i], second_moment[i]}, gradient[i]);
      parameter[i] = next.parameter;
      first_moment[i] = next.first_moment;
      second_moment[i] = next.second_moment;
    }
  }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (const auto* values : {&parameter, &first_moment, &second_moment}) {
      for (float value : *values) all.push_back(std::bit_cast<std::uint32_t>(value));
    }
    return all;
  }
};

struct SplitState {
  using Operands = SplitAdamWOperands;
  std::vector<Bfloat16> parameter, gradient;
  std::vector<std::int16_t> low;
  std::vector<float> first_moment, second_moment;
  std::size_t offset = 0;

  // Of p all bits are taken, even those of a NaN that no update would leave.
  SplitState(const std::vector<float>& p, const std::vector<float>& g, const std::vector<float>& m,
             const std::vector<float>& v)
      : first_moment(m), second_moment(v) {
    for (float value : p) {
      const SplitWeight halves = split_of_bits(std::bit_cast<std::uint32_t>(value));
      parameter.push_back(halves.weight);
      low.push_back(halves.low);
    }
    set_gradient(g);
  }

  std::int64_t count() const { return static_cast<std::int64_t>(parameter.size() - offset); }
  void set_gradient(const std::vector<float>& g) {
    gradient.clear();
    for (float value : g) gradient.push_back(Bfloat16(value));
  }
  Operands operands() {
    Bfloat16* p = parameter.data() + offset;
    std::int16_t* l = low.data() + offset;
    float *m = first_moment.data() + offset, *v = second_moment.data() + offset;
    return {p, gradient.data() + offset, l, m, v, p, l, m, v};
  }
  void update_plainly(const AdamWConstants<float>& constants) {
    for (std::size_t i = offset; i < parameter.size(); ++i) {
      const float master = joined({parameter[i], low[i]});
      const auto next = adamw_update(constants, {master, first_moment[i], second_moment[i]},
                                     static_cast<float>(gradient[i]));
      const SplitWeight halves = split(next.parameter);
      parameter[i] = halves.weight;
      low[i] = halves.low;
      first_moment[i] = next.first_moment;
      second_moment[i] = next.second_moment;
    }
  }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      all.push_back(static_cast<std::uint32_t>(parameter[i].bits) << 16U |
                    static_cast<std::uint16_t>(low[i]));
    }
    for (const auto* values : {&first_moment, &second_moment}) {
      for (float value : *values) all.push_back(std::bit_cast<std::uint32_t>(value));
    }
    return all;
  }
};

struct HalfState {
  using Operands = HalfAdamWOperands;
  std::vector<Float16> parameter, gradient;
  std::vector<std::int32_t> low;
  std::vector<float> first_moment, second_moment;
  std::size_t offset = 0;

  HalfState(const std::vector<float>& p, const std::vector<float>& g, const std::vector<float>& m,
            const std::vector<float>& v)
      : first_moment(m), second_moment(v) {
    for (float value : p) {
      const HalfSplitWeight both = split_half(value);
      parameter.push_back(both.weight);
      low.push_back(both.low);
    }
    set_gradient(g);
  }

  std::int64_t count() const { return static_cast<std::int64_t>(parameter.size() - offset); }
  void set_gradient(const std::vector<float>& g) {
    gradient.clear();
    for (float value : g) gradient.push_back(Float16(value));
  }
  Operands operands() {
    Float16* p = parameter.data() + offset;
    std::int32_t* l = low.data() + offset;
    float *m = first_moment.data() + offset, *v = second_moment.data() + offset;
    return {p, gradient.data() + offset, l, m, v, p, l, m, v};
  }
  void update_plainly(const AdamWConstants<float>& constants) {
    for (std::size_t i = offset; i < parameter.size(); ++i) {
      const float master = joined(HalfSplitWeight{parameter[i], low[i]});
      const auto next = adamw_update(constants, {master, first_moment[i], second_moment[i]},
                                     static_cast<float>(gradient[i]));
      const HalfSplitWeight both = split_half(next.parameter);
      parameter[i] = both.weight;
      low[i] = both.low;
      first_moment[i] = next.first_moment;
      second_moment[i] = next.second_moment;
    }
  }
  // Masters, weights (which a NaN's payload shows in), moments.
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (std::size_t i = 0; i < parameter.size(); ++i) {
      const float master = joined(HalfSplitWeight{parameter[i], low[i]});
      all.push_back(std::bit_cast<std::uint32_t>(master));
      all.push_back(master != master ? 0 : parameter[i].bits);
    }
    for (const auto* values : {&first_moment, &second_moment}) {
      for (float value : *values) all.push_back(std::bit_cast<std::uint32_t>(value));
    }
    return all;
  }
};

// Any bits at all.
template <class State>
State nasty_state(std::int64_t count, unsigned seed) {
  return {any_floats(count, seed), any_floats(count, seed + 1), any_floats(count, seed + 2),
          any_floats(count, seed + 3)};
}

// As behind many steps.
template <class State>
State usual_state(std::int64_t count, unsigned seed) {
  std::vector<float> v = normal_floats(count, seed + 3, 0.3F);
  for (float& value : v) value = 1e-4F * (1 + value * value);
  return {normal_floats(count, seed, 0.1F), normal_floats(count, seed + 1, 0.01F),
          normal_floats(count, seed + 2, 0.003F), v};
}

// Which NaN comes of two is not said anywhere; everything else is.
inline std::vector<std::uint32_t> with_one_nan(std::vector<std::uint32_t> bits) {
  for (std::uint32_t& each : bits) {
    if ((each & 0x7fffffffU) > 0x7f800000U) each = 0x7fc00000U;
  }
  return bits;
}

// Runs the body with each instruction set of this machine.
template <class Body>
void with_each_instruction_set(const Body& body) {
  for (const std::string& name : instruction_sets()) {
    SCOPED_TRACE(name);
    use_instruction_set(name);
    ASSERT_EQ(instruction_set_in_use(), name);
    body();
  }
  use_instruction_set("");
}

}  // namespace stowage::cpu::test
