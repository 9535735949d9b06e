#include "kernels/cpu/codec.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cpu/storage.h"
#include "src/base/parallel_for.h"
#include "tests/kernels/cpu/codec_draws.h"
#include "tests/kernels/cpu/plain_codec.h"
#include "tests/support/draws.h"

namespace stowage::cpu::test {
namespace {

constexpr CodeBits both_widths[] = {CodeBits::four, CodeBits::eight};
constexpr std::byte untouched{0xa5};

template <class T>
std::vector<T> as(const std::vector<float>& values) {
  std::vector<T> result;
  for (const float value : values) result.push_back(T(value));
  return result;
}
template <class T>
std::vector<float> wide_values(const std::vector<T>& values) {
  std::vector<float> result;
  for (const T value : values) result.push_back(wide(value));
  return result;
}

template <class T>
std::vector<std::byte> encoded(CodeBits bits, const std::vector<T>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(coded_bytes(count, bits) + 8, untouched);
  encode(bits, count, values.data(), bytes.data());
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(bytes.back(), untouched) << "behind the end";
    bytes.pop_back();
  }
  return bytes;
}
template <class T>
std::vector<T> decoded(CodeBits bits, std::size_t count, const std::vector<std::byte>& bytes) {
  std::vector<T> values(count);
  decode(bits, static_cast<std::int64_t>(count), bytes.data(), values.data());
  return values;
}
template <class T>
std::vector<T> there_and_back(CodeBits bits, const std::vector<T>& values) {
  return decoded<T>(bits, values.size(), encoded(bits, values));
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t bits_of(Bfloat16 value) { return value.bits; }
std::uint32_t bits_of(Float16 value) { return value.bits; }
template <class T>
std::vector<std::uint32_t> bits_of(const std::vector<T>& values) {
  std::vector<std::uint32_t> all;
  for (const T value : values) all.push_back(bits_of(value));
  return all;
}

template <class T>
constexpr float greatest_number = std::is_same_v<T, Float16>    ? 65504.0F
                                  : std::is_same_v<T, Bfloat16> ? 0x1.fep127F
                                                                : 0x1.fffffep127F;
template <class T>
constexpr float least_normal = std::is_same_v<T, Float16> ? 0x1p-14F : 0x1p-126F;

template <class T>
class Codec : public ::testing::Test {
 protected:
  void TearDown() override { set_parallel_threads(0); }
};
using Types = ::testing::Types<float, Bfloat16, Float16>;
TYPED_TEST_SUITE(Codec, Types);

TEST(CodedBytes, AreCodesAndThreeBytesAGroup) {
  EXPECT_EQ(coded_bytes(0, CodeBits::four), 0U);
  EXPECT_EQ(coded_bytes(256, CodeBits::four), 131U);
  EXPECT_EQ(coded_bytes(256, CodeBits::eight), 259U);
  EXPECT_EQ(coded_bytes(1, CodeBits::four), 4U);
  EXPECT_EQ(coded_bytes(2, CodeBits::four), 4U);
  EXPECT_EQ(coded_bytes(3, CodeBits::four), 5U);
  EXPECT_EQ(coded_bytes(255, CodeBits::eight), 258U);
  EXPECT_EQ(coded_bytes(257, CodeBits::four), 135U);
  EXPECT_EQ(coded_bytes(std::int64_t{1} << 40, CodeBits::four), (Bytes{1} << 32) * 131);
  EXPECT_EQ(coded_bytes(std::int64_t{1} << 40, CodeBits::eight), (Bytes{1} << 32) * 259);
}

// A group of all sixteen levels from -1 to 1, and a group of three elements.
TEST(CodedBytes, AreCodesInOrderAndThenHeaders) {
  std::vector<float> values;
  for (int i = 0; i < 256; ++i) values.push_back(static_cast<float>(2 * (i % 16) - 15) / 15);
  values.push_back(2);
  values.push_back(-0.5F);
  values.push_back(2);
  std::vector<std::byte> expected;
  for (int i = 0; i < 128; ++i) expected.push_back(static_cast<std::byte>(0x10 + 0x22 * (i % 8)));
  for (const int byte : {0x0f, 0x0f,         // codes 15, 0 and 15
                         0x80, 0x3f, 0x40,   // scale 1, t = -64 / 64
                         0x00, 0x40, 0x70})  // scale 2, t = -16 / 64
    expected.push_back(static_cast<std::byte>(byte));
  EXPECT_EQ(encoded(CodeBits::four, values), expected);
}

TEST(CodedBytes, OfNothingAreNone) {
  encode<float>(CodeBits::four, 0, nullptr, nullptr);
  decode<float>(CodeBits::four, 0, nullptr, nullptr);
}

TYPED_TEST(Codec, KeepsZeros) {
  for (const CodeBits bits : both_widths) {
    std::vector<float> values(300);
    for (std::size_t i = 0; i < values.size(); i += 3) values[i] = -0.0F;
    EXPECT_EQ(bits_of(there_and_back(bits, as<TypeParam>(values))), std::vector<std::uint32_t>(300));
  }
}

TEST(Codec, MakesZerosOfSubnormalNumbers) {
  for (const CodeBits bits : both_widths) {
    EXPECT_EQ(bits_of(there_and_back(bits, std::vector<float>(256, -0x0.fffffep-126F))),
              std::vector<std::uint32_t>(256));
    EXPECT_EQ(bits_of(there_and_back(bits, as<Bfloat16>(std::vector<float>(5, 0x1p-130F)))),
              std::vector<std::uint32_t>(5));
  }
}

TYPED_TEST(Codec, KeepsASingleNumber) {
  std::vector<float> singles = {
      1,           3,         1.0F / 3,  greatest_number<TypeParam>, least_normal<TypeParam>,
      0x1.01p-10F, 0x1.fdp5F, 0x1.ff8p5F};
  CodecDraws draws(1);
  for (int i = 0; i < testing::draws(400, 100); ++i)
    singles.push_back(
        static_cast<float>(std::ldexp(1 + draws.uniform(), static_cast<int>(draws.below(28)) - 14)));
  for (const CodeBits bits : both_widths) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{256}}) {
      for (const float single : singles) {
        for (const TypeParam value : {TypeParam(single), TypeParam(-single)}) {
          const float right = wide(value);
          for (const TypeParam found : there_and_back(bits, std::vector<TypeParam>(count, value)))
            ASSERT_LE(std::abs(wide(found) - right), 0x1p-7F * std::abs(right))
                << right << " became " << wide(found);
        }
      }
    }
  }
}

TYPED_TEST(Codec, KeepsTheGreatestNumbersFinite) {
  CodecDraws draws(2);
  constexpr float greatest = greatest_number<TypeParam>;
  for (const CodeBits bits : both_widths) {
    for (int round = 0; round < 50; ++round) {
      std::vector<float> values(256);
      for (float& value : values) {
        value = draws.below(2) == 0 ? greatest : -greatest;
        if (round > 0 && draws.below(static_cast<std::uint64_t>(round)) > 0)
          value *= static_cast<float>(draws.uniform());
      }
      if (round % 3 == 0)
        for (float& value : values) value = std::abs(value);
      for (const TypeParam value : there_and_back(bits, as<TypeParam>(values)))
        ASSERT_TRUE(std::isfinite(wide(value))) << "round " << round;
    }
  }
}

TYPED_TEST(Codec, MakesNansOfAGroupThatIsNotFinite) {
  CodecDraws draws(3);
  std::vector<float> values(3 * 256 + 5);
  for (float& value : values) value = static_cast<float>(draws.gaussian());
  constexpr float infinity = std::numeric_limits<float>::infinity(),
                  nan = std::numeric_limits<float>::quiet_NaN();
  for (const CodeBits bits : both_widths) {
    const auto expected = there_and_back(bits, as<TypeParam>(values));
    for (const float bad : {nan, -nan, infinity, -infinity}) {
      for (const std::size_t at : {256, 300, 511, 768, 772}) {
        auto planted = as<TypeParam>(values);
        planted[at] = TypeParam(bad);
        const auto found = there_and_back(bits, planted);
        for (std::size_t i = 0; i < found.size(); ++i) {
          if (i / 256 == at / 256) {
            ASSERT_TRUE(std::isnan(wide(found[i]))) << bad << " at " << at << ", element " << i;
          } else {
            ASSERT_EQ(bits_of(found[i]), bits_of(expected[i])) << bad << " at " << at << ", element " << i;
          }
        }
      }
    }
  }
}

// The bytes and the decoded bits of an array as PlainCodec gives them.
template <class T>
struct Expected {
  std::vector<std::byte> bytes;
  std::vector<std::uint32_t> decoded;
};
template <class T>
Expected<T> plainly(CodeBits bits, const std::vector<T>& values) {
  Expected<T> all;
  std::vector<std::byte> headers;
  for (std::size_t begin = 0; begin < values.size(); begin += 256) {
    const std::size_t end = std::min(values.size(), begin + 256);
    const PlainGroup group =
        PlainCodec(bits, wide_values(std::vector<T>(values.begin() + static_cast<std::ptrdiff_t>(begin),
                                                    values.begin() + static_cast<std::ptrdiff_t>(end))))
            .group();
    for (std::size_t i = 0; i < group.codes.size(); ++i) {
      const auto code = static_cast<std::byte>(group.codes[i]);
      if (bits == CodeBits::four && i % 2 == 1) {
        all.bytes.back() |= code << 4;
      } else {
        all.bytes.push_back(code);
      }
    }
    for (const int byte : {group.scale & 255, group.scale >> 8, group.place})
      headers.push_back(static_cast<std::byte>(byte));
    for (const float value : group.decoded) {
      constexpr float limit = greatest_number<T>;
      const float limited =
          std::isnan(value) || std::is_same_v<T, Bfloat16> ? value : std::clamp(value, -limit, limit);
      all.decoded.push_back(bits_of(T(limited)));
    }
  }
  all.bytes.insert(all.bytes.end(), headers.begin(), headers.end());
  return all;
}

template <class T>
void expect_plain_bits(CodeBits bits, const std::vector<T>& values) {
  const Expected<T> expected = plainly(bits, values);
  const std::vector<std::byte> bytes = encoded(bits, values);
  ASSERT_TRUE(bytes == expected.bytes);
  ASSERT_TRUE(bits_of(decoded<T>(bits, values.size(), bytes)) == expected.decoded);
}

TYPED_TEST(Codec, HasTheBitsOfPlainCodeForAnyThreads) {
  constexpr int groups_at_once = 200;
  const int groups = testing::sanitized ? 600 : testing::fewer_draws ? 3000 : 340000;
  CodecDraws draws(4);
  for (int done = 0; done < groups; done += groups_at_once) {
    std::vector<float> values;
    for (int i = 0; i < groups_at_once; ++i) {
      const std::vector<float> group = any_group(draws);
      values.insert(values.end(), group.begin(), group.end());
    }
    values.resize(values.size() - draws.below(256));
    for (const CodeBits bits : both_widths) {
      for (const int threads : done == 0 ? std::vector<int>{1, 2, 3, 5} : std::vector<int>{0}) {
        set_parallel_threads(threads);
        ASSERT_NO_FATAL_FAILURE(expect_plain_bits(bits, as<TypeParam>(values)))
            << "groups from " << done << ", " << threads << " threads";
      }
    }
  }
}

TYPED_TEST(Codec, HasTheBitsOfPlainCodeAtAnyLength) {
  CodecDraws draws(5);
  for (std::size_t count = 1; count <= 256; ++count) {
    std::vector<float> values = any_group(draws), whole = any_group(draws);
    values.resize(count);
    if (count % 4 == 0) values.insert(values.begin(), whole.begin(), whole.end());
    for (const CodeBits bits : both_widths)
      ASSERT_NO_FATAL_FAILURE(expect_plain_bits(bits, as<TypeParam>(values))) << count << " elements";
  }
}

// Groups whose two best headers differ in the last bits of their errors, so that the order in which squares
// are added chooses between them.
TEST(Codec, AddsErrorsInTheOrderOfPlainCode) {
  for (const int seed : {528525, 2045190, 2228024, 4532249, 5966527, 6145778}) {
    CodecDraws draws(static_cast<std::uint64_t>(seed));
    std::vector<float> values(256);
    for (float& value : values) value = static_cast<float>(draws.gaussian());
    for (const CodeBits bits : both_widths)
      ASSERT_NO_FATAL_FAILURE(expect_plain_bits(bits, values)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace stowage::cpu::test
