#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

struct Sizes {
  std::int64_t tokens, inputs, outputs;
};

class CudaLinear : public CudaKernelTest {
 protected:
  static constexpr Sizes all[] = {{1, 1, 1}, {5, 7, 3}, {16, 64, 32}, {33, 24, 40}, {65, 129, 66}};

  static TestOperand matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
    return {Role::work, {rows, columns}, draws(rows * columns, seed)};
  }
  static TestOperand weight(const Sizes& sizes, std::int64_t transposed) {
    return transposed != 0 ? matrix(sizes.outputs, sizes.inputs, 2) : matrix(sizes.inputs, sizes.outputs, 2);
  }
  static TestOperand bias(const Sizes& sizes) {
    return {Role::work, {sizes.outputs}, draws(sizes.outputs, 3, 4)};
  }
  static TestOperand output(std::vector<std::int64_t> shape, double tolerance = 0) {
    return {Role::work, std::move(shape), {}, tolerance};
  }

  template <class Test>
  static void for_all(const Test& test) {
    for (const Sizes& sizes : all) {
      for (const std::int64_t transposed : {0, 1}) {
        SCOPED_TRACE(testing::Message() << sizes.tokens << " x " << sizes.inputs << " x " << sizes.outputs
                                        << (transposed != 0 ? ", transposed" : ""));
        test(sizes, transposed);
      }
    }
  }
};

TEST_F(CudaLinear, MultipliesWithAndWithoutBias) {
  for_all([&](const Sizes& sizes, std::int64_t transposed) {
    const TestOperand x = matrix(sizes.tokens, sizes.inputs, 1);
    const TestOperand w = weight(sizes, transposed);
    const TestOperand y = output({sizes.tokens, sizes.outputs});
    expect_right({"linear", {{"transposed", transposed}}, {x, w}, {y}});
    expect_right({"linear", {{"transposed", transposed}}, {x, w, bias(sizes)}, {y}});
  });
}

TEST_F(CudaLinear, GivesTheGradientOfItsInput) {
  for_all([&](const Sizes& sizes, std::int64_t transposed) {
    expect_right({"linear_backward_input",
                  {{"transposed", transposed}},
                  {matrix(sizes.tokens, sizes.outputs, 4), weight(sizes, transposed)},
                  {output({sizes.tokens, sizes.inputs})}});
  });
}

TEST_F(CudaLinear, GivesTheGradientOfItsWeight) {
  for_all([&](const Sizes& sizes, std::int64_t transposed) {
    expect_right({"linear_backward_weight",
                  {{"transposed", transposed}},
                  {matrix(sizes.tokens, sizes.inputs, 1), matrix(sizes.tokens, sizes.outputs, 4)},
                  {output(weight(sizes, transposed).shape)}});
  });
}

// In bf16 y may be the GELU of the rounded or of the unrounded sum.
TEST_F(CudaLinear, KeepsWhatEntersTheGelu) {
  for (const char* form : {"tanh", "erf"}) {
    for_all([&](const Sizes& sizes, std::int64_t transposed) {
      KernelCase of{"linear_gelu",
                    {{"transposed", transposed}, {"form", form}},
                    {matrix(sizes.tokens, sizes.inputs, 1), weight(sizes, transposed), bias(sizes)},
                    {output({sizes.tokens, sizes.outputs}), output({sizes.tokens, sizes.outputs})}};
      expect_right_in(of, DataType::f32);
      of.writes[1].tolerance = 0x1p-7;
      expect_right_in(of, DataType::bf16);
    });
  }
}

}  // namespace
}  // namespace stowage::test
