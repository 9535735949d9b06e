// The kernels encode and decode of the CPU's launch table, and what they refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cpu/codec.h"
#include "kernels/math/bfloat16.h"
#include "kernels/math/float16.h"
#include "stowage/launch_table.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

// An op that reads one tensor and writes another.
struct CodecOp {
  Op op;
  Tensor from, to;

  CodecOp(const char* kernel, Attribute bits, const Tensor& read, const Tensor& written)
      : from(read), to(written) {
    op.name = "op";
    op.kernel = kernel;
    op.attributes["bits"] = bits;
  }

  // `read` and `written` hold the tensors' elements.
  void run(const void* read, void* written) const {
    const Operand reads[] = {{const_cast<void*>(read), &from}}, writes[] = {{written, &to}};
    cpu_launch_table().find(op)({&op, reads, writes, {}});
  }
};

Tensor numbers(DataType type, std::int64_t count) { return {"x", type, {count}, TensorKind::activation, {}}; }
Tensor codes(std::int64_t bytes) { return {"codes", DataType::u8, {bytes}, TensorKind::activation, {}}; }

template <class T>
class CodecOps : public testing::Test {
 protected:
  static constexpr DataType type = std::is_same_v<T, float>      ? DataType::f32
                                   : std::is_same_v<T, Bfloat16> ? DataType::bf16
                                                                 : DataType::f16;
};
using Types = testing::Types<float, Bfloat16, Float16>;
TYPED_TEST_SUITE(CodecOps, Types);

TYPED_TEST(CodecOps, WriteTheBytesOfTheCodec) {
  constexpr std::int64_t count = 3 * 256 + 77;
  std::vector<TypeParam> x;
  for (int i = 0; i < count; ++i) x.push_back(TypeParam(std::sin(static_cast<float>(i * i))));
  for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
    const auto bytes = static_cast<std::int64_t>(coded_bytes(count, bits));
    const auto attribute = static_cast<std::int64_t>(bits);
    std::vector<std::byte> coded(coded_bytes(count, bits)), right = coded;
    CodecOp("encode", attribute, numbers(this->type, count), codes(bytes)).run(x.data(), coded.data());
    cpu::encode(bits, count, x.data(), right.data());
    EXPECT_EQ(coded, right);

    std::vector<TypeParam> decoded(count), plain(count);
    CodecOp("decode", attribute, codes(bytes), numbers(this->type, count)).run(coded.data(), decoded.data());
    cpu::decode(bits, count, right.data(), plain.data());
    for (std::size_t i = 0; i < decoded.size(); ++i)
      ASSERT_EQ(static_cast<float>(decoded[i]), static_cast<float>(plain[i])) << i;
  }
}

// 100 elements take 53 bytes with 4 bits, and 103 with 8.
void expect_both_refused(Attribute bits, DataType type, std::int64_t bytes, const std::string& words) {
  const auto refuse = [&](const CodecOp& op) {
    test::expect_refused([&] { op.run(nullptr, nullptr); }, "(kernel '" + op.op.kernel + "') " + words);
  };
  refuse({"encode", bits, numbers(type, 100), codes(bytes)});
  refuse({"decode", bits, codes(bytes), numbers(type, 100)});
}

TEST(CodecOps, RefuseSizesThatDoNotFit) {
  for (const std::int64_t bytes : {0, 52, 54, 103})
    expect_both_refused(
        std::int64_t{4}, DataType::f32, bytes,
        "has " + std::to_string(bytes) + " bytes of codes, but 100 elements take 53; build it as");
  expect_both_refused(std::int64_t{8}, DataType::f16, 53, "has 53 bytes of codes, but 100 elements take 103");
}

TEST(CodecOps, RefuseOtherBits) {
  for (const std::int64_t bits : {0, -4, 5, 16, 260})
    expect_both_refused(bits, DataType::bf16, 53, "needs 4 or 8 as attribute 'bits'");
  expect_both_refused(4.0, DataType::bf16, 53, "needs the integer attribute 'bits'");
}

TEST(CodecOps, RefuseOtherTypes) {
  for (const DataType type : {DataType::f64, DataType::i32, DataType::u8})
    expect_both_refused(
        std::int64_t{4}, type, 53,
        "codes " + std::string(to_string(type)) + ", but the codec takes f32, bf16 and f16; build it as");
  Tensor words = codes(53);
  words.type = DataType::i16;
  const CodecOp op("encode", std::int64_t{4}, numbers(DataType::f32, 100), words);
  test::expect_refused([&] { op.run(nullptr, nullptr); }, "does not take 'codes' in its type");
}

TEST(CodecOps, RefuseOtherOperands) {
  for (const char* kernel : {"encode", "decode"}) {
    Op op;
    op.kernel = kernel;
    const Kernel run = cpu_launch_table().find(op);
    test::expect_refused([&] { run({&op, {}, {}, {}}); }, "has the wrong number of inputs");
  }
}

}  // namespace
}  // namespace stowage
