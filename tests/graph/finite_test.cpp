#include "src/graph/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace stowage {
namespace {

template <class T>
std::optional<NonFiniteElement> look(DataType type, const std::vector<T>& values) {
  return first_non_finite(type, std::as_bytes(std::span(values)));
}

template <class T>
void expect_found(DataType type) {
  using Limits = std::numeric_limits<T>;
  const std::vector<T> good = {0, -0.0, 1, -1, Limits::max(), Limits::lowest(), Limits::denorm_min()};
  EXPECT_FALSE(look(type, good));
  EXPECT_FALSE(look(type, std::vector<T>{}));
  for (const T bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), -Limits::quiet_NaN(),
                      Limits::signaling_NaN()}) {
    for (std::size_t place = 0; place < good.size(); ++place) {
      std::vector<T> values = good;
      values[place] = bad;
      values.push_back(bad == Limits::infinity() ? Limits::quiet_NaN() : Limits::infinity());
      const auto found = look(type, values);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->index, place);
      EXPECT_EQ(found->is_nan, std::isnan(bad));
    }
  }
}

TEST(Finite, FindsTheFirstThatIsNot) {
  expect_found<float>(DataType::f32);
  expect_found<double>(DataType::f64);
}

TEST(Finite, KnowsBfloat16) {
  using Bits = std::vector<std::uint16_t>;
  EXPECT_FALSE(look(DataType::bf16, Bits{0, 0x8000, 0x3f80, 0x7f7f, 0xff7f, 1, 0x007f}));
  const auto infinity = look(DataType::bf16, Bits{0, 0xff80, 0x7fc0});
  ASSERT_TRUE(infinity);
  EXPECT_EQ(infinity->index, 1U);
  EXPECT_FALSE(infinity->is_nan);
  const auto nan = look(DataType::bf16, Bits{0, 0, 0x7f81});
  ASSERT_TRUE(nan);
  EXPECT_EQ(nan->index, 2U);
  EXPECT_TRUE(nan->is_nan);
}

TEST(Finite, KnowsFloat16) {
  using Bits = std::vector<std::uint16_t>;
  EXPECT_FALSE(look(DataType::f16, Bits{0, 0x8000, 0x3c00, 0x7bff, 0xfbff, 1, 0x03ff}));
  const auto infinity = look(DataType::f16, Bits{0, 0xfc00, 0x7e00});
  ASSERT_TRUE(infinity);
  EXPECT_EQ(infinity->index, 1U);
  EXPECT_FALSE(infinity->is_nan);
  const auto nan = look(DataType::f16, Bits{0, 0, 0x7c01});
  ASSERT_TRUE(nan);
  EXPECT_EQ(nan->index, 2U);
  EXPECT_TRUE(nan->is_nan);
}

TEST(Finite, WholeNumbersAre) {
  EXPECT_FALSE(look(DataType::i32, std::vector<std::uint32_t>{0x7f800000U, 0x7fc00000U}));
  EXPECT_FALSE(look(DataType::i16, std::vector<std::uint16_t>{0x7f80U, 0x7fc0U}));
}

TEST(Finite, ElementsMayLieAnywhere) {
  std::vector<std::byte> bytes(1 + 2 * sizeof(float));
  const float bad = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + 1 + sizeof bad, &bad, sizeof bad);
  const auto found = first_non_finite(DataType::f32, std::span<const std::byte>(bytes).subspan(1));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->index, 1U);
}

}  // namespace
}  // namespace stowage
