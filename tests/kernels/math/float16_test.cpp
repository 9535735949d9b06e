#include "kernels/math/float16.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>

#include "src/base/parallel_for.h"
#include "tests/support/draws.h"

namespace stowage {
namespace {

std::uint32_t f32_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
float f32_of(std::uint32_t bits) { return std::bit_cast<float>(bits); }
float widened(std::uint16_t half) { return static_cast<float>(Float16{std::bit_cast<Float16>(half)}); }

// Said by the standard: 1 sign, 5 exponent, 10 fraction bits.
double by_its_fields(std::uint32_t half) {
  const int exponent = static_cast<int>(half >> 10U & 31U);
  const double fraction = half & 0x3ffU, sign = (half & 0x8000U) != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(Float16, HoldsWhatItsOwnBitsSay) {
  for (std::uint32_t half = 0; half < 0x10000U; ++half) {
    const double right = by_its_fields(half);
    const float value = widened(static_cast<std::uint16_t>(half));
    if (std::isnan(right)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(Float16(value).bits, half | 0x200U);
      continue;
    }
    EXPECT_EQ(static_cast<double>(value), right);
    EXPECT_EQ(std::signbit(value), (half & 0x8000U) != 0);
    EXPECT_EQ(Float16(value).bits, half);
  }
}

// Around every number of f16 and every middle between two: the neighbours in f32.
TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  for (std::uint32_t half = 0; half < 0x7c00U; ++half) {
    const double here = by_its_fields(half);
    const double above = half == 0x7bffU ? 65536.0 : by_its_fields(half + 1);
    const auto middle = static_cast<float>((here + above) / 2);
    const std::uint32_t even = half % 2 == 0 ? half : half + 1;
    ASSERT_EQ(static_cast<double>(middle), (here + above) / 2);
    for (const std::uint32_t sign : {0U, 0x8000U}) {
      const auto rounded = [&](std::uint32_t all) { return Float16(f32_of(all | sign << 16U)).bits - sign; };
      EXPECT_EQ(rounded(f32_bits(middle)), even) << middle;
      EXPECT_EQ(rounded(f32_bits(middle) - 1), half) << middle;
      EXPECT_EQ(rounded(f32_bits(middle) + 1), half + 1) << middle;
    }
  }
}

// Whether f32 of these bits is rounded as the compiler does, and comes back from a split.
bool is_right(std::uint32_t all) {
#ifdef __FLT16_MAX__
  if (Float16(f32_of(all)).bits != std::bit_cast<std::uint16_t>(static_cast<_Float16>(f32_of(all))))
    return false;
#endif
  const HalfSplitWeight split = split_half(f32_of(all));
  return split.weight.bits == Float16(f32_of(all)).bits && f32_bits(joined(split)) == all;
}

// A prime stride reaches all exponents and all low bits.
TEST(Float16, RoundsAsTheCompilerAndSplitsWithoutLoss) {
  constexpr std::int64_t stride = stowage::testing::fewer_draws ? 4001 : 61;
  std::atomic<std::int64_t> wrong = 0;
  parallel_for((std::int64_t{1} << 32) / stride, std::int64_t{1} << 20,
               [&](std::int64_t begin, std::int64_t end) {
                 std::int64_t here = 0;
                 for (std::int64_t i = begin; i < end; ++i)
                   here += is_right(static_cast<std::uint32_t>(i * stride)) ? 0 : 1;
                 wrong += here;
               });
  EXPECT_EQ(wrong, 0);
}

TEST(HalfSplitWeight, BeginsAsTheWeightItself) {
  EXPECT_EQ(joined(HalfSplitWeight{Float16(0.3F)}), static_cast<float>(Float16(0.3F)));
}

}  // namespace
}  // namespace stowage
