#include "kernels/math/bfloat16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace stowage {
namespace {

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }
float of(std::uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(Bfloat16, HoldsWhatItsOwnBitsSay) {
  for (std::uint32_t upper = 0; upper < 0x10000U; ++upper) {
    const float value = of(upper << 16U);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(static_cast<float>(Bfloat16(value))));
    } else {
      EXPECT_EQ(Bfloat16(value).bits, upper);
      EXPECT_EQ(bits(static_cast<float>(Bfloat16(value))), upper << 16U);
    }
  }
}

TEST(Bfloat16, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(Bfloat16(of(0x3f800001U)).bits, 0x3f80U);
  EXPECT_EQ(Bfloat16(of(0x3f807fffU)).bits, 0x3f80U);
  EXPECT_EQ(Bfloat16(of(0x3f808000U)).bits, 0x3f80U);
  EXPECT_EQ(Bfloat16(of(0x3f808001U)).bits, 0x3f81U);
  EXPECT_EQ(Bfloat16(of(0x3f818000U)).bits, 0x3f82U);
  EXPECT_EQ(Bfloat16(of(0xbf818000U)).bits, 0xbf82U);
  EXPECT_EQ(Bfloat16(std::numeric_limits<float>::max()).bits, 0x7f80U);
}

TEST(SplitWeight, GivesEveryBitBack) {
  std::mt19937 generator(1);
  for (int draw = 0; draw < 1'000'000; ++draw) {
    const auto all = static_cast<std::uint32_t>(generator());
    const float value = of(all);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(joined(split(value))));
    } else {
      ASSERT_EQ(bits(joined(split(value))), all);
    }
  }
}

// The weight is never further from the master than half of its last place.
TEST(SplitWeight, WeighsWhatTheMasterDoes) {
  std::mt19937 generator(2);
  for (int draw = 0; draw < 1'000'000; ++draw) {
    const float master = of((static_cast<std::uint32_t>(generator()) & 0xbfffffffU) | 0x20000000U);
    const float weight = static_cast<float>(split(master).weight);
    ASSERT_LE(std::abs(weight - master), std::abs(master) * 0x1p-8F) << master;
  }
}

TEST(SplitWeight, ANanShowsInTheWeight) {
  for (std::uint32_t nan : {0x7fffffffU, 0xffffffffU, 0x7fc00000U, 0x7f800001U}) {
    EXPECT_TRUE(std::isnan(static_cast<float>(split(of(nan)).weight)));
  }
}

}  // namespace
}  // namespace stowage
