#include "kernels/math/exponential.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stowage {
namespace {

TEST(Exponential, IsGoodToTwoUnitsInTheLastPlace) {
  for (float x = -87.0F; x <= 88.0F; x += 0.00137F) {
    const double right = std::exp(static_cast<double>(x));
    ASSERT_NEAR(exponential(x) / right, 1, 2 * 0x1p-23) << x;
  }
}

TEST(Exponential, ClampsAndKeepsNan) {
  EXPECT_EQ(exponential(0.0F), 1.0F);
  EXPECT_EQ(exponential(-1e30F), exponential(-87.0F));
  EXPECT_EQ(exponential(1e30F), exponential(88.0F));
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Normal, TailsAreGoodRelatively) {
  for (float x = -8.0F; x <= 8.0F; x += 0.0011F) {
    const Normal<float> found = normal(x);
    const Normal<double> right = normal(static_cast<double>(x));
    // The rounding of x^2 / 2, up to 32, moves the exponential by that many units.
    ASSERT_NEAR(found.cumulative / right.cumulative, 1, 40 * 0x1p-24) << x;
    ASSERT_NEAR(found.density / right.density, 1, 40 * 0x1p-24) << x;
  }
}

TEST(Normal, WideTypeIsTheDefinition) {
  EXPECT_DOUBLE_EQ(normal(0.0).cumulative, 0.5);
  EXPECT_DOUBLE_EQ(normal(1.0).cumulative, 0.84134474606854293);
  EXPECT_DOUBLE_EQ(normal(1.0).density, 0.24197072451914337);
}

}  // namespace
}  // namespace stowage
