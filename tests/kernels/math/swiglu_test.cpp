#include "kernels/math/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stowage {
namespace {

// Both parts, relative to their own size: no digits are lost where they are near 0.
TEST(Sigmoid, OfF32IsPreciseNearBothEnds) {
  for (float x = -86.5F; x <= 86.5F; x += 0.37F) {
    const Sigmoid<float> found = sigmoid(x);
    const Sigmoid<double> right = sigmoid(static_cast<double>(x));
    EXPECT_NEAR(found.value / right.value, 1, 4e-7) << x;
    EXPECT_NEAR(found.rest / right.rest, 1, 4e-7) << x;
  }
}

TEST(Sigmoid, OfF64IsTheDefinition) {
  for (double x = -30; x <= 30; x += 0.37) {
    const Sigmoid<double> found = sigmoid(x);
    EXPECT_NEAR(found.value * (1 + std::exp(-x)), 1, 1e-15) << x;
    EXPECT_NEAR(found.rest * (1 + std::exp(x)), 1, 1e-15) << x;
  }
}

template <class T>
void expect_ends() {
  const T most = std::numeric_limits<T>::max(), none = std::numeric_limits<T>::quiet_NaN();
  EXPECT_EQ(sigmoid(most).value, 1);
  EXPECT_EQ(sigmoid(most).rest, 0);
  EXPECT_EQ(sigmoid(-most).value, 0);
  EXPECT_EQ(sigmoid(-most).rest, 1);
  EXPECT_EQ(sigmoid(T{0}).value, static_cast<T>(0.5));
  EXPECT_TRUE(std::isnan(swiglu(none, T{1})));
  EXPECT_TRUE(std::isnan(swiglu_gradient(none, T{1}, T{1}).gate));
}

TEST(Sigmoid, ReachesItsEndsAndKeepsNan) {
  expect_ends<float>();
  expect_ends<double>();
}

// Gates so large are the identity, and so small 0; both have the gradient of that.
template <class T>
void expect_limits_of_swiglu() {
  const T most = std::numeric_limits<T>::max();
  EXPECT_EQ(swiglu(most, T{1}), most);
  EXPECT_EQ(swiglu(-most, most), 0);
  const SwigluGradient<T> right = swiglu_gradient(most, T{2}, T{3}),
                          left = swiglu_gradient(-most, most, T{3});
  EXPECT_EQ(right.gate, 6);
  EXPECT_EQ(left.gate, 0);
  EXPECT_EQ(left.up, 0);
}

TEST(SwigluMath, IsTheIdentityFarRightAndZeroFarLeft) {
  expect_limits_of_swiglu<float>();
  expect_limits_of_swiglu<double>();
}

}  // namespace
}  // namespace stowage
