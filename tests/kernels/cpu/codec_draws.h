// Numbers for tests of the codec: the same ones with every standard library.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace stowage::cpu::test {

// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators").
class CodecDraws {
 public:
  explicit CodecDraws(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t count) { return (bits() >> 32) * count >> 32; }
  double uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }  // in (0, 1)
  double gaussian() {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
  }
  double student_3() {
    const double a = gaussian(), b = gaussian(), c = gaussian();
    return gaussian() / std::sqrt((a * a + b * b + c * c) / 3);
  }

 private:
  std::uint64_t state_;
};

inline double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }

// 256 numbers of a kind that `draws` picks: as in activations; of one sign; few different ones; near both
// ends of f32's range; any bits.
inline std::vector<float> any_group(CodecDraws& draws) {
  const std::uint64_t kind = draws.below(12), seldom = 1 + draws.below(64);
  const double scale = std::ldexp(1 + draws.uniform(), static_cast<int>(draws.below(24)) - 12);
  const double middle = draws.gaussian() * std::ldexp(1, static_cast<int>(draws.below(8)));
  const float few[4] = {static_cast<float>(draws.gaussian()), static_cast<float>(draws.gaussian()), 0, -0.0F};
  const auto draw = [&](std::size_t i) -> double {
    switch (kind) {
      case 0:
        return scale * draws.gaussian();
      case 1:
        return scale * draws.student_3();
      case 2:
        return scale * gelu(draws.gaussian());
      case 3:
        return scale * draws.gaussian() * (draws.below(seldom) == 0 ? 20 : 1);
      case 4:
        return scale * (middle + draws.gaussian());
      case 5:
        return scale * std::abs(draws.gaussian()) * (seldom % 2 == 0 ? 1 : -1);
      case 6:
        return static_cast<double>(few[draws.below(1 + seldom % 4)]);
      case 7:
        return draws.below(seldom) == 0 ? scale * draws.gaussian() : 0;
      case 8:
        return std::ldexp((seldom % 2 == 0 ? 0.36 : 3) * draws.gaussian(), -126);
      case 9:
        return std::ldexp(draws.uniform() * 2 - 1, 128);
      case 10:
        return scale * static_cast<double>(i) * (seldom % 2 == 0 ? 1 : -1);
      default:
        return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(draws.bits())));
    }
  };
  // Any bits have one element in 128 that is not finite: half of these groups are kept finite.
  std::vector<float> values(256);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(draw(i));
    if (seldom % 2 == 0 && !std::isfinite(values[i])) values[i] = 1;
  }
  return values;
}

}  // namespace stowage::cpu::test
