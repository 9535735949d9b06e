#include "src/model_files/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"

namespace stowage {
namespace {

template <class To, class From>
To converted(StoredType from, From value, DataType to) {
  To result{};
  convert(from, std::as_bytes(std::span(&value, 1)), to, std::as_writable_bytes(std::span(&result, 1)));
  return result;
}

float half(std::uint16_t bits) { return converted<float>(StoredType::f16, bits, DataType::f32); }
std::uint16_t brain(double value) { return converted<Bfloat16>(StoredType::f64, value, DataType::bf16).bits; }

TEST(Convert, ReadsEveryHalf) {
  EXPECT_EQ(half(0x3c00), 1.0F);
  EXPECT_EQ(half(0xc000), -2.0F);
  EXPECT_EQ(half(0x7bff), 65504.0F);
  EXPECT_EQ(half(0x0001), 0x1p-24F);
  EXPECT_EQ(half(0x83ff), -1023 * 0x1p-24F);
  EXPECT_EQ(half(0x0400), 0x1p-14F);
  EXPECT_EQ(half(0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(half(0x7e00)));
  EXPECT_TRUE(std::signbit(half(0x8000)));
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits)  // rising, without a gap
    ASSERT_LT(half(static_cast<std::uint16_t>(bits)), half(static_cast<std::uint16_t>(bits + 1)));
}

TEST(Convert, KeepsTheBitsOfTheSameType) {
  const std::uint32_t odd_nan = 0x7fc12345;
  EXPECT_EQ(converted<std::uint32_t>(StoredType::f32, odd_nan, DataType::f32), odd_nan);
  EXPECT_EQ(converted<std::uint16_t>(StoredType::bf16, std::uint16_t{0xffc1}, DataType::bf16), 0xffc1);
}

TEST(Convert, RoundsOnceToTheNearest) {
  EXPECT_EQ(converted<float>(StoredType::f64, 1 + 0x1.8p-23, DataType::f32), 1 + 0x1p-22F);
  EXPECT_EQ(converted<double>(StoredType::f32, 0.1F, DataType::f64), static_cast<double>(0.1F));
  EXPECT_EQ(brain(1.0), 0x3f80);
  EXPECT_EQ(brain(1 + 0x1p-8), 0x3f80);            // a tie, to even
  EXPECT_EQ(brain(1 + 0x1p-8 + 0x1p-40), 0x3f81);  // above it by less than an f32 can say
  EXPECT_EQ(brain(-1 - 0x1p-8 - 0x1p-40), 0xbf81);
  EXPECT_EQ(brain(1 + 0x3p-8 - 0x1p-40), 0x3f81);  // below the next tie
  EXPECT_EQ(brain(1e300), 0x7f80);
  EXPECT_TRUE(std::isnan(static_cast<float>(std::bit_cast<Bfloat16>(brain(NAN)))));
}

TEST(Convert, RoundsOnceToHalves) {
  const auto half_of = [](double value) {
    return converted<Float16>(StoredType::f64, value, DataType::f16).bits;
  };
  EXPECT_EQ(half_of(1 + 0x1p-11), 0x3c00);            // a tie, to even
  EXPECT_EQ(half_of(1 + 0x1p-11 + 0x1p-40), 0x3c01);  // above it by less than an f32 can say
  EXPECT_EQ(half_of(-1 - 0x1p-11 - 0x1p-40), 0xbc01);
  EXPECT_EQ(half_of(0x1p-25 + 0x1p-60), 1);
  EXPECT_EQ(half_of(65519.999), 0x7bff);
  EXPECT_EQ(half_of(65520), 0x7c00);
  EXPECT_EQ(converted<std::uint16_t>(StoredType::f16, std::uint16_t{0xfc01}, DataType::f16), 0xfc01);
}

TEST(Convert, SplitsMastersAndJoinsThem) {
  std::vector<float> masters;
  for (std::uint32_t i = 0; i < 1000; ++i) masters.push_back(std::bit_cast<float>(0x3e000000U + i * 7919U));
  std::vector<std::uint16_t> weights(masters.size()), low(masters.size());
  std::vector<float> back(masters.size());
  const auto come_back = [&](DataType type, auto& low) {
    back.assign(masters.size(), 0);
    split_masters(std::as_bytes(std::span(masters)), type, std::as_writable_bytes(std::span(weights)),
                  std::as_writable_bytes(std::span(low)));
    join_masters(type, std::as_bytes(std::span(weights)), std::as_bytes(std::span(low)),
                 std::as_writable_bytes(std::span(back)));
    return std::memcmp(back.data(), masters.data(), 4 * masters.size()) == 0;
  };
  std::vector<std::int32_t> distances(masters.size());
  EXPECT_TRUE(come_back(DataType::bf16, low));
  EXPECT_EQ(weights[0], Bfloat16(masters[0]).bits);
  EXPECT_TRUE(come_back(DataType::f16, distances));
  EXPECT_EQ(weights[0], Float16(masters[0]).bits);
}

}  // namespace
}  // namespace stowage
