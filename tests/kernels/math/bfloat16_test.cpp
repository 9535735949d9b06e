#include "kernels/math/bfloat16.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>

#include "src/base/parallel_for.h"
#include "tests/support/draws.h"

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

// Split and joined, they are as before; `split` makes one NaN of all.
bool come_back(std::uint32_t all) {
  const bool nan = (all & 0x7fffffffU) > 0x7f800000U;
  return bits(joined(split_of_bits(all))) == all && bits(joined(split(of(all)))) == (nan ? 0x7fc00000U : all);
}

// All 2^32 patterns, where that takes seconds.
TEST(SplitWeight, GivesEveryPatternBack) {
  constexpr std::int64_t stride = stowage::testing::fewer_draws ? 251 : 1;
  std::atomic<std::int64_t> wrong = 0;
  parallel_for((std::int64_t{1} << 32) / stride, std::int64_t{1} << 20,
               [&](std::int64_t begin, std::int64_t end) {
                 std::int64_t here = 0;
                 for (std::int64_t i = begin; i < end; ++i)
                   here += come_back(static_cast<std::uint32_t>(i * stride)) ? 0 : 1;
                 wrong += here;
               });
  EXPECT_EQ(wrong, 0);
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
