#include "kernels/math/sine_cosine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace stowage {
namespace {

// The library's sin and cos reduce any angle exactly. An f32 that is off by `allowed` of a unit in the last
// place at most is the nearest one, or was almost half way to it.
void expect_right(float angle) {
  constexpr double allowed = 0.5001 * 0x1p-23;
  const SineCosine<double> found = sine_cosine(static_cast<double>(angle));
  const double sine = std::sin(static_cast<double>(angle));
  const double cosine = std::cos(static_cast<double>(angle));
  ASSERT_NEAR(found.sine, sine, 0x1p-52) << angle;
  ASSERT_NEAR(found.cosine, cosine, 0x1p-52) << angle;
  ASSERT_NEAR(static_cast<double>(static_cast<float>(found.sine)), sine, allowed * std::abs(sine)) << angle;
  ASSERT_NEAR(static_cast<double>(static_cast<float>(found.cosine)), cosine, allowed * std::abs(cosine))
      << angle;
}

TEST(SineCosine, IsRightUpToAMillion) {
  std::mt19937 random(3);
  for (int power = -30; power <= 20; ++power) {
    std::uniform_real_distribution<float> angles(std::ldexp(0.5F, power), std::ldexp(1.0F, power));
    for (int i = 0; i < 500; ++i) {
      const float angle = angles(random);
      expect_right(angle);
      expect_right(-angle);
    }
  }
  expect_right(0x1p20F);
}

// Where one of the two is near 0, the angle must be reduced to many bits.
TEST(SineCosine, IsRightBesideWholeQuarters) {
  for (int quarter = 1; quarter < 667'544; quarter += quarter < 1000 ? 1 : 37) {
    const auto angle = static_cast<float>(quarter * 1.57079632679489661923);
    expect_right(std::nextafter(angle, 0.0F));
    expect_right(angle);
    expect_right(std::nextafter(angle, 2e6F));
  }
}

TEST(SineCosine, OfZeroIsExact) {
  EXPECT_EQ(sine_cosine(0.0).sine, 0);
  EXPECT_EQ(sine_cosine(0.0).cosine, 1);
}

TEST(SineCosine, StaysBoundedForAnglesTooLarge) {
  for (double angle = 0x1p20; angle <= 0x1p33; angle *= 1.37) {
    EXPECT_LE(std::abs(sine_cosine(angle).sine), 1.001) << angle;
    EXPECT_LE(std::abs(sine_cosine(angle).cosine), 1.001) << angle;
  }
  EXPECT_TRUE(std::isnan(sine_cosine(std::numeric_limits<double>::quiet_NaN()).sine));
}

}  // namespace
}  // namespace stowage
