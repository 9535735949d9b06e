#include "kernels/math/gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stowage {
namespace {

template <class Form>
class GeluMath : public ::testing::Test {};
using Forms = ::testing::Types<GeluTanh, GeluErf>;
TYPED_TEST_SUITE(GeluMath, Forms);

template <class Form, class T>
void expect_limits() {
  EXPECT_EQ(Form::value(T{0}), T{0});
  EXPECT_EQ(Form::value(T{30}), T{30});
  EXPECT_NEAR(Form::value(T{-30}), 0, 1e-30);
  EXPECT_EQ(Form::derivative(T{30}), T{1});
  EXPECT_NEAR(Form::derivative(T{-30}), 0, 1e-30);
  EXPECT_EQ(Form::derivative(T{0}), static_cast<T>(0.5));
  EXPECT_TRUE(std::isnan(Form::value(std::numeric_limits<T>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(Form::derivative(std::numeric_limits<T>::quiet_NaN())));
}

TYPED_TEST(GeluMath, IsTheIdentityFarRightZeroFarLeftAndKeepsNan) {
  expect_limits<TypeParam, float>();
  expect_limits<TypeParam, double>();
}

}  // namespace
}  // namespace stowage
