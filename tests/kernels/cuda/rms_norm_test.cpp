#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

struct Sizes {
  std::int64_t rows, width;
};

class CudaRmsNorm : public CudaKernelTest {
 protected:
  // One row, odd widths, whole packs, more packs than threads (in f32), more rows than a chunk of the column
  // sums, rows that are no multiple of those that are summed at once.
  static constexpr Sizes all[] = {{1, 5}, {3, 32}, {7, 45}, {5, 768}, {2, 2309}, {200, 24}};

  static TestOperand matrix(const Sizes& sizes, unsigned seed) {
    return {Role::work, {sizes.rows, sizes.width}, draws(sizes.rows * sizes.width, seed, 2)};
  }
  static TestOperand gain(const Sizes& sizes) {
    return {Role::work, {sizes.width}, draws(sizes.width, 2, 2)};
  }
  static TestOperand output(std::vector<std::int64_t> shape, Role role = Role::work) {
    return {role, std::move(shape), {}};
  }

  static KernelCase forward(const Sizes& sizes) {
    return {"rms_norm",
            {{"epsilon", 0.01}},
            {matrix(sizes, 1), gain(sizes)},
            {output({sizes.rows, sizes.width}), output({sizes.rows}, Role::sums)}};
  }
  // The gradient of the input alone.
  static KernelCase backward(const Sizes& sizes) {
    return {"rms_norm_backward",
            {},
            {matrix(sizes, 1), gain(sizes), rstd(sizes), matrix(sizes, 4)},
            {output({sizes.rows, sizes.width})}};
  }
  // Of the rows of `forward`.
  static TestOperand rstd(const Sizes& sizes) {
    const std::vector<Output> of = run_cpu(forward(sizes), DataType::f64, DataType::bf16);
    return {Role::sums, {sizes.rows}, widened(of[1], DataType::f64)};
  }
};

// One to eight packs a lane where a warp has a row, then a block's, and rows too wide to be held in
// registers; rows that do not fill the last block.
TEST_F(CudaRmsNorm, NormalisesRows) {
  for (const Sizes& sizes : all) expect_right(forward(sizes));
  for (const std::int64_t width : {260, 500, 1000, 1500, 2040, 8210, 16400})
    expect_right(forward({width < 2000 ? 5 : 2, width}));
}

TEST_F(CudaRmsNorm, RowsOfZerosStayZero) {
  KernelCase of = forward({2, 40});
  for (double& value : of.reads[0].values) value = 0;
  expect_right(of);
}

TEST_F(CudaRmsNorm, GivesTheGradientOfItsInputInPlaceToo) {
  for (const Sizes& sizes : all) {
    KernelCase of = backward(sizes);
    expect_right(of);
    of.in_place = {{0, 3}};
    expect_right(of);
  }
}

TEST_F(CudaRmsNorm, AddsAnotherGradientOfItsInput) {
  for (const Sizes& sizes : all) {
    KernelCase of = backward(sizes);
    of.reads.push_back(matrix(sizes, 5));
    of.in_place = {{0, 3}};
    expect_right(of);
  }
}

// In one pass, and in two where a row has more packs than a block has threads.
TEST_F(CudaRmsNorm, GivesBothGradientsInOneLaunch) {
  for (const Sizes& sizes : all) {
    KernelCase of = backward(sizes);
    of.writes.push_back(output({sizes.width}));
    expect_right(of);
    of.reads.push_back(matrix(sizes, 5));
    of.in_place = {{0, 3}};
    expect_right(of, 3);
  }
}

TEST_F(CudaRmsNorm, GivesTheGradientOfItsGain) {
  for (const Sizes& sizes : all) {
    expect_right({"rms_norm_backward_parameters",
                  {},
                  {matrix(sizes, 1), rstd(sizes), matrix(sizes, 4)},
                  {output({sizes.width})}});
  }
}

}  // namespace
}  // namespace stowage::test
