#include <cmath>

#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

class CudaElementwise : public CudaKernelTest {
 protected:
  // Fewer than a pack, whole packs, a tail, more than a block.
  static constexpr std::int64_t counts[] = {1, 3, 8, 16, 37, 5003};

  static TestOperand input(std::int64_t count, unsigned seed, double range = 4) {
    return {Role::work, {count}, draws(count, seed, range)};
  }
  static TestOperand output(std::int64_t count) { return {Role::work, {count}, {}}; }
};

TEST_F(CudaElementwise, AddsTwoTensors) {
  for (const std::int64_t count : counts)
    expect_right({"add", {}, {input(count, 1), input(count, 2)}, {output(count)}});
}

TEST_F(CudaElementwise, AccumulatesInPlace) {
  for (const std::int64_t count : counts) {
    expect_right({"accumulate", {}, {input(count, 1), input(count, 2)}, {output(count)}, {{0, 0}}});
  }
}

// Unaligned, too, and whatever lies behind the elements that count.
TEST_F(CudaElementwise, TreeSumHasTheCpusBits) {
  for (const std::int64_t rows : {1, 2, 4, 8, 16, 1024}) {
    for (const auto& [length, counted] : {std::pair{1, 1}, {16, 13}, {37, 37}, {40, 0}, {2056, 2051}}) {
      if (rows * length > 50000) continue;
      for (const Role role : {Role::work, Role::f64}) {
        TestOperand a{role, {rows * length}, draws(rows * length, 1)};
        for (std::int64_t i = 0; i < rows * length; ++i) {
          double& value = a.values[static_cast<std::size_t>(i)];
          value = i % length < counted ? std::copysign(std::exp(std::abs(2 * value)), value) : NAN;
        }
        const KernelCase of{
            "tree_sum", {{"rows", rows}, {"count", std::int64_t{counted}}}, {a}, {{role, {length}, {}}}};
        for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
          const std::vector<Output> right = run_cpu(of, type, type);
          EXPECT_EQ(run_cuda(of, type), right) << rows << " rows of " << length << ' ' << to_string(type);
          EXPECT_EQ(run_cuda(of, type, 1), right) << rows << " rows of " << length << ' ' << to_string(type);
        }
      }
    }
  }
}

// Small tensors need not be aligned to a pack.
TEST_F(CudaElementwise, TakesAnyAddress) {
  for (const std::int64_t offset : {1, 2, 3, 5}) {
    expect_right({"add", {}, {input(29, 1), input(29, 2)}, {output(29)}}, offset);
    expect_right({"gelu", {{"form", "erf"}}, {input(29, 1)}, {output(29)}}, offset);
  }
}

TEST_F(CudaElementwise, GeluInBothForms) {
  for (const char* form : {"tanh", "erf"}) {
    for (const std::int64_t count : counts)
      expect_right({"gelu", {{"form", form}}, {input(count, 3, 8)}, {output(count)}});
  }
}

TEST_F(CudaElementwise, GeluBackwardInBothFormsAndInPlace) {
  for (const char* form : {"tanh", "erf"}) {
    for (const std::int64_t count : counts) {
      const std::vector<TestOperand> reads{input(count, 3, 8), input(count, 4)};
      expect_right({"gelu_backward", {{"form", form}}, reads, {output(count)}});
      expect_right({"gelu_backward", {{"form", form}}, reads, {output(count)}, {{0, 1}}});
    }
  }
}

// One row, odd widths, whole packs, more columns than a block has, more rows than the most chunks of the
// least.
TEST_F(CudaElementwise, GeluBackwardSumsItsColumnsForTheBiasInPlaceToo) {
  using Shape = std::vector<std::int64_t>;
  for (const char* form : {"tanh", "erf"}) {
    for (const Shape& shape : {Shape{1, 5}, Shape{70, 24}, Shape{7, 45}, Shape{3, 1032}, Shape{9000, 3}}) {
      const std::int64_t count = shape[0] * shape[1];
      TestOperand x = input(count, 3, 8), dy = input(count, 4), dx = output(count);
      x.shape = dy.shape = dx.shape = shape;
      const TestOperand dbias = output(shape[1]);
      expect_right({"gelu_backward", {{"form", form}}, {x, dy}, {dx, dbias}});
      expect_right({"gelu_backward", {{"form", form}}, {x, dy}, {dx, dbias}, {{0, 1}}}, 3);
    }
  }
}

TEST_F(CudaElementwise, DropoutDropsWhatTheCpuDrops) {
  constexpr std::int64_t count = 5003;
  TestOperand x = input(count, 5);
  for (double& value : x.values) value = std::abs(value) + 1;  // no zeros but the dropped ones
  for (const double probability : {0.0, 0.1, 0.75}) {
    const KernelCase of{
        "dropout", {{"probability", probability}, {"key", std::int64_t{11}}}, {x}, {output(count)}};
    expect_right(of);
    const std::vector<double> right = widened(run_cpu(of, DataType::f32, DataType::f32)[0], DataType::f32);
    for (const DataType type : {DataType::f32, DataType::bf16, DataType::f16}) {
      const std::vector<double> found = widened(run_cuda(of, type)[0], type);
      for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i] == 0, right[i] == 0) << i;
    }
  }
}

TEST_F(CudaElementwise, AddsWhatDropoutLeaves) {
  for (const std::int64_t count : counts) {
    for (const std::int64_t offset : {0, 3}) {
      for (const std::int64_t first : {20, 21, 22, 23}) {
        expect_right({"add",
                      {{"probability", 0.25}, {"key", std::int64_t{11}}, {"first_element", first}},
                      {input(count, 1), input(count, 2)},
                      {output(count)}},
                     offset);
      }
    }
  }
}

TEST_F(CudaElementwise, DropoutOfEverythingIsZero) {
  const KernelCase of{
      "dropout", {{"probability", 1.0}, {"key", std::int64_t{1}}}, {input(99, 1)}, {output(99)}, {{0, 0}}};
  for (const double value : widened(run_cuda(of, DataType::f32)[0], DataType::f32)) EXPECT_EQ(value, 0);
}

TEST_F(CudaElementwise, TanhAndItsBackwardInPlace) {
  for (const std::int64_t count : counts) {
    expect_right({"tanh", {}, {input(count, 3)}, {output(count)}});
    const std::vector<TestOperand> reads{input(count, 3, 1), input(count, 4)};
    expect_right({"tanh_backward", {}, reads, {output(count)}});
    expect_right({"tanh_backward", {}, reads, {output(count)}, {{0, 1}}});
  }
}

}  // namespace
}  // namespace stowage::test
