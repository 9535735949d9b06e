// Signal to noise of coded arrays, in decibels: sum of squares to sum of squared errors.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/cpu/codec.h"
#include "tests/kernels/cpu/codec_draws.h"
#include "tests/kernels/cpu/plain_codec.h"
#include "tests/support/draws.h"

namespace stowage::cpu::test {
namespace {

std::vector<Bfloat16> drawn(std::int64_t count, const std::function<double(std::int64_t)>& draw) {
  std::vector<Bfloat16> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(Bfloat16(static_cast<float>(draw(i))));
  return values;
}

class Noise {
 public:
  void add(Bfloat16 value, double decoded) {
    const auto right = static_cast<double>(static_cast<float>(value));
    signal_ += right * right;
    noise_ += (decoded - right) * (decoded - right);
  }
  double ratio() const { return 10 * std::log10(signal_ / noise_); }

 private:
  double signal_ = 0, noise_ = 0;
};

// Requires whole groups.
double plain_ratio(CodeBits bits, const std::vector<Bfloat16>& values, Kinds kinds) {
  Noise noise;
  std::vector<float> group(256);
  for (std::size_t begin = 0; begin < values.size(); begin += 256) {
    for (std::size_t i = 0; i < 256; ++i) group[i] = static_cast<float>(values[begin + i]);
    const std::vector<float> decoded = PlainCodec(bits, group, kinds).group().decoded;
    for (std::size_t i = 0; i < 256; ++i) noise.add(values[begin + i], static_cast<double>(decoded[i]));
  }
  return noise.ratio();
}

// `T`: the type that is decoded to.
template <class T>
double ratio(CodeBits bits, const std::vector<Bfloat16>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(coded_bytes(count, bits));
  encode(bits, count, values.data(), bytes.data());
  std::vector<T> decoded(values.size());
  decode(bits, count, bytes.data(), decoded.data());
  Noise noise;
  for (std::size_t i = 0; i < values.size(); ++i)
    noise.add(values[i], static_cast<double>(static_cast<float>(decoded[i])));
  return noise.ratio();
}

constexpr std::int64_t elements = testing::sanitized ? 1 << 17 : 1 << 20;

// Plain codes alone are judged on a part of the values: they take a hundred times as long.
void expect_ratios(double four_bits, double eight_bits, const std::function<double(std::int64_t)>& draw) {
  const std::vector<Bfloat16> values = drawn(elements, draw);
  const std::vector<Bfloat16> part(values.begin(), values.begin() + testing::draws(1 << 20, 1 << 16) / 8);
  for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
    SCOPED_TRACE(bits == CodeBits::four ? "4 bits" : "8 bits");
    const double least = bits == CodeBits::four ? four_bits : eight_bits;
    EXPECT_GE(ratio<float>(bits, values), least);
    EXPECT_GE(ratio<Bfloat16>(bits, values), least);
    const double of_part = ratio<float>(bits, part);
    for (const Kinds kinds : {Kinds::uniform, Kinds::piecewise})
      EXPECT_GE(of_part, plain_ratio(bits, part, kinds) - 0.001);
  }
}

TEST(CodecNoise, OfGaussianNumbers) {
  CodecDraws draws(1);
  expect_ratios(19.9, 44.0, [&](std::int64_t) { return draws.gaussian(); });
}
TEST(CodecNoise, OfStudentsNumbers) {
  CodecDraws draws(2);
  expect_ratios(16.2, 40.4, [&](std::int64_t) { return draws.student_3(); });
}
TEST(CodecNoise, OfGeluOfGaussianNumbers) {
  CodecDraws draws(3);
  expect_ratios(21.5, 45.3, [&](std::int64_t) { return gelu(draws.gaussian()); });
}
// Rows of 1,600 channels, of which 16 are 20 times larger: the same ones in every row.
TEST(CodecNoise, OfRowsWithLargeChannels) {
  CodecDraws draws(4);
  std::vector<double> scales(1600, 1);
  for (int large = 0; large < 16;) {
    double& scale = scales[draws.below(1600)];
    large += scale == 1 ? 1 : 0;
    scale = 20;
  }
  expect_ratios(16.4, 40.6, [&](std::int64_t i) {
    return scales[static_cast<std::size_t>(i % 1600)] * draws.gaussian();
  });
}

}  // namespace
}  // namespace stowage::cpu::test
