#include "kernels/math/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

namespace stowage {
namespace {

TEST(RotaryFrequencies, ArePowersOfTheta) {
  for (const double theta : {1.0, 1.5, 10'000.0, 500'000.0, 1e6, 1e30}) {
    for (const std::int64_t width : {2, 6, 64, 80, 96, 128, 256, 512}) {
      const RotaryFrequencies found = rotary_frequencies(width, {.theta = theta});
      for (std::int64_t i = 0; i < width / 2; ++i) {
        const double right = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width));
        ASSERT_EQ(found.values[i], static_cast<float>(right)) << theta << ", width " << width << ", " << i;
      }
    }
  }
}

// Computed with Python's mpmath in 200 bits and rounded to f32. Fast turns stay, the next are between, and
// slow ones are divided by the factor.
TEST(RotaryFrequencies, AreScaledAsLlama3) {
  const RotaryFrequencies first =  // Llama 3.1 8B
      rotary_frequencies(128, {.theta = 500'000, .scaled = true, .factor = 8});
  for (const auto& [pair, right] : {std::pair{0, 1.0F},
                                    {1, 0x1.a11582p-1F},
                                    {28, 0x1.a4ee4p-9F},
                                    {29, 0x1.1bfa0ep-9F},
                                    {31, 0x1.c12f3ap-11F},
                                    {34, 0x1.765ba6p-13F},
                                    {35, 0x1.90d10cp-14F},
                                    {63, 0x1.4985fep-22F}})
    EXPECT_EQ(first.values[pair], right) << pair;
  const RotaryFrequencies second =  // Llama 3.2 1B
      rotary_frequencies(64, {.theta = 500'000, .scaled = true, .factor = 32});
  for (const auto& [pair, right] : {std::pair{10, 0x1.0f5386p-6F},
                                    {14, 0x1.a4ee4p-9F},
                                    {15, 0x1.524f34p-10F},
                                    {16, 0x1.c26c46p-12F},
                                    {17, 0x1.9731f2p-14F},
                                    {18, 0x1.46831ap-16F},
                                    {31, 0x1.94836p-24F}})
    EXPECT_EQ(second.values[pair], right) << pair;
}

TEST(RotaryFrequencies, NeedAValidBase) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(RotaryBase{}.valid());
  EXPECT_TRUE((RotaryBase{.scaled = true}).valid());
  for (const double theta : {0.0, -1.0, 0.5, infinite, none}) EXPECT_FALSE((RotaryBase{theta}).valid());
  for (const double factor : {0.0, 0.5, infinite, none})
    EXPECT_FALSE((RotaryBase{.scaled = true, .factor = factor}).valid());
  for (const auto& [low, high] :
       {std::pair{0.0, 4.0}, {4.0, 4.0}, {4.0, 1.0}, {1.0, infinite}, {none, 4.0}, {1.0, none}}) {
    const RotaryBase base{.scaled = true, .low_frequency_factor = low, .high_frequency_factor = high};
    EXPECT_FALSE(base.valid()) << low << ", " << high;
  }
  EXPECT_FALSE((RotaryBase{.scaled = true, .original_positions = 0}).valid());
}

}  // namespace
}  // namespace stowage
