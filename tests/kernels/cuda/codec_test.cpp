// Codes and decoded numbers have the bits of the CPU's.
#include "stowage/codec.h"

#include <algorithm>
#include <limits>

#include "tests/kernels/cpu/codec_draws.h"
#include "tests/kernels/cuda/cuda_kernel_case.h"
#include "tests/support/draws.h"

namespace stowage::test {
namespace {

using cpu::test::any_group;
using cpu::test::CodecDraws;

class CudaCodec : public CudaKernelTest {
 protected:
  static constexpr DataType types[] = {DataType::f32, DataType::bf16, DataType::f16};

  static KernelCase encoding(CodeBits bits, const std::vector<double>& x) {
    const auto count = static_cast<std::int64_t>(x.size());
    return {"encode",
            {{"bits", static_cast<std::int64_t>(bits)}},
            {{Role::work, {count}, x}},
            {{Role::u8, {static_cast<std::int64_t>(coded_bytes(count, bits))}, {}}}};
  }
  static KernelCase decoding(CodeBits bits, std::int64_t count, const Output& codes) {
    std::vector<double> bytes;
    for (const std::byte byte : codes) bytes.push_back(std::to_integer<int>(byte));
    return {"decode",
            {{"bits", static_cast<std::int64_t>(bits)}},
            {{Role::u8, {static_cast<std::int64_t>(bytes.size())}, bytes}},
            {{Role::work, {count}, {}}}};
  }

  // In one type, `x` rounded to it: the codes are the CPU's, and so is what these decode to.
  void expect_bits_in(DataType type, const std::vector<double>& x, std::int64_t offset = 0) {
    for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
      SCOPED_TRACE(std::string(to_string(type)) + (bits == CodeBits::four ? ", 4 bits" : ", 8 bits"));
      const KernelCase encode = encoding(bits, x);
      const std::vector<Output> codes = run_cpu(encode, type, type);
      ASSERT_TRUE(run_cuda(encode, type, offset) == codes);
      const KernelCase decode = decoding(bits, static_cast<std::int64_t>(x.size()), codes[0]);
      ASSERT_TRUE(run_cuda(decode, type, offset) == run_cpu(decode, type, type));
    }
  }
  void expect_bits(const std::vector<double>& x, std::int64_t offset = 0) {
    for (const DataType type : types) ASSERT_NO_FATAL_FAILURE(expect_bits_in(type, x, offset));
  }

  // Returns the CPU's header of a group in f32 whose first element is `value`.
  static Output header_with(CodeBits bits, double value, std::vector<double>& x) {
    x[0] = value;
    const Output codes = run_cpu(encoding(bits, x), DataType::f32, DataType::f32)[0];
    return {codes.end() - code_header_bytes, codes.end()};
  }

  static std::vector<double> any_groups(CodecDraws& draws, int groups) {
    std::vector<double> x;
    for (int i = 0; i < groups; ++i)
      for (const float value : any_group(draws)) x.push_back(value);
    return x;
  }
};

TEST_F(CudaCodec, HasTheBitsOfTheCpu) {
  constexpr int groups_at_once = 500;
  const int groups = testing::sanitized ? 100 : testing::fewer_draws ? 2000 : 170000;
  CodecDraws draws(6);
  for (int done = 0; done < groups; done += groups_at_once) {
    std::vector<double> x = any_groups(draws, std::min(groups, groups_at_once));
    x.resize(x.size() - draws.below(256));
    ASSERT_NO_FATAL_FAILURE(expect_bits(x)) << "groups from " << done;
  }
}

TEST_F(CudaCodec, HasTheBitsOfTheCpuAtAnyLength) {
  CodecDraws draws(7);
  for (std::size_t count = 1; count <= 256; ++count) {
    std::vector<double> x = any_groups(draws, count % 4 == 0 ? 2 : 1);
    x.resize(x.size() - 256 + count);
    const DataType type = types[count % 3];
    ASSERT_NO_FATAL_FAILURE(expect_bits_in(type, x)) << count << " elements";
  }
}

TEST_F(CudaCodec, TakesAnyAddress) {
  CodecDraws draws(8);
  std::vector<double> x = any_groups(draws, 12);
  x.resize(x.size() - 77);
  for (const std::int64_t offset : {1, 2, 3, 4, 6, 8, 12}) ASSERT_NO_FATAL_FAILURE(expect_bits(x, offset));
}

TEST_F(CudaCodec, TakesNothing) { expect_bits({}); }

// A group of each; one such number among others; one alone at the array's end.
TEST_F(CudaCodec, HasTheBitsOfTheCpuForSpecialNumbers) {
  constexpr double infinity = std::numeric_limits<double>::infinity(),
                   nan = std::numeric_limits<double>::quiet_NaN(), largest_f32 = 0x1.fffffep127;
  CodecDraws draws(9);
  for (const double special :
       {0.0, -0.0, infinity, -infinity, nan, -nan, 0x1p-149, -0x1.fffffcp-127, 0x1p-126, 0x1p-130, 0x1p-24,
        0x1.ff8p-15, largest_f32, -largest_f32, 0x1.fep127, -0x1.fep127, 65504.0, -65504.0, 1.0}) {
    std::vector<double> x(256, special);
    for (int i = 0; i < 512; ++i) x.push_back(i == 77 ? special : draws.gaussian());
    for (int i = 0; i < 256; ++i) x.push_back(i % 2 == 0 ? special : -special * draws.uniform());
    x.push_back(special);
    ASSERT_NO_FATAL_FAILURE(expect_bits(x)) << special;
  }
}

// Groups next to a change of header, where two have about the same error: the last bits of the sums choose.
TEST_F(CudaCodec, AddsErrorsInTheOrderOfTheCpu) {
  CodecDraws draws(10);
  for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
    for (int found = 0; found < 20;) {
      std::vector<double> x(256);
      for (double& value : x) value = draws.gaussian();
      double low = -0.5, high = 0.5;
      const Output first = header_with(bits, low, x);
      if (header_with(bits, high, x) == first) continue;
      ++found;
      while (high - low > 0x1p-24) {
        const double middle = (low + high) / 2;
        (header_with(bits, middle, x) == first ? low : high) = middle;
      }
      for (const double value : {low, high}) {
        x[0] = value;
        ASSERT_NO_FATAL_FAILURE(expect_bits_in(DataType::f32, x)) << "change " << found;
      }
    }
  }
}

}  // namespace
}  // namespace stowage::test
