#include <cmath>

#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

struct Sizes {
  std::int64_t rows, width;
};

class CudaLayerNorm : public CudaKernelTest {
 protected:
  // One row, odd widths, whole packs, more packs than threads (in f32), more rows than a chunk of the column
  // sums, rows that are no multiple of those that are summed at once.
  static constexpr Sizes all[] = {{1, 5}, {3, 32}, {7, 45}, {5, 768}, {2, 2309}, {200, 24}};

  static TestOperand matrix(const Sizes& sizes, unsigned seed, double range = 2) {
    return {Role::work, {sizes.rows, sizes.width}, draws(sizes.rows * sizes.width, seed, range)};
  }
  static TestOperand row(const Sizes& sizes, unsigned seed) {
    return {Role::work, {sizes.width}, draws(sizes.width, seed, 2)};
  }
  static TestOperand output(std::vector<std::int64_t> shape, Role role = Role::work, double tolerance = 0) {
    return {role, std::move(shape), {}, tolerance};
  }

  static KernelCase forward(const Sizes& sizes) {
    return {"layer_norm",
            {{"epsilon", 1e-5}},
            {matrix(sizes, 1), row(sizes, 2), row(sizes, 3)},
            {output({sizes.rows, sizes.width}), output({sizes.rows}, Role::sums),
             output({sizes.rows}, Role::sums)}};
  }
  // The gradient of the input alone.
  static KernelCase backward(const Sizes& sizes) {
    return {"layer_norm_backward",
            {},
            {matrix(sizes, 1), row(sizes, 2), statistic(sizes, 1), statistic(sizes, 2), matrix(sizes, 4)},
            {output({sizes.rows, sizes.width})}};
  }
  // Of the rows of `forward`, for the backward kernels.
  static TestOperand statistic(const Sizes& sizes, std::size_t index) {
    const KernelCase of = forward(sizes);
    return {
        Role::sums, {sizes.rows}, widened(run_cpu(of, DataType::f64, DataType::bf16)[index], DataType::f64)};
  }
};

// One to eight packs a lane where a warp has a row, then a block's, and rows too wide to be held in
// registers; rows that do not fill the last block.
TEST_F(CudaLayerNorm, NormalisesRows) {
  for (const Sizes& sizes : all) expect_right(forward(sizes));
  for (const std::int64_t width : {260, 500, 1000, 1500, 2040, 8210, 16400})
    expect_right(forward({width < 2000 ? 5 : 2, width}));
}

TEST_F(CudaLayerNorm, ConstantRowsGiveTheBias) {
  const Sizes sizes{2, 40};
  KernelCase of = forward(sizes);
  for (double& value : of.reads[0].values) value = 3;
  expect_right(of);
}

TEST_F(CudaLayerNorm, GivesTheGradientOfItsInputInPlaceToo) {
  for (const Sizes& sizes : all) {
    KernelCase of = backward(sizes);
    expect_right(of);
    of.in_place = {{0, 4}};
    expect_right(of);
  }
}

TEST_F(CudaLayerNorm, AddsAnotherGradientOfItsInput) {
  for (const Sizes& sizes : all) {
    KernelCase of = backward(sizes);
    of.reads.push_back(matrix(sizes, 5));
    of.in_place = {{0, 4}};
    expect_right(of);
  }
}

// In one pass, and in two where a row has more packs than a block has threads.
TEST_F(CudaLayerNorm, GivesAllGradientsInOneLaunch) {
  for (const Sizes& sizes : all) {
    KernelCase of = backward(sizes);
    of.writes.insert(of.writes.end(), 2, output({sizes.width}));
    expect_right(of);
    of.reads.push_back(matrix(sizes, 5));
    of.in_place = {{0, 4}};
    expect_right(of, 3);
  }
}

TEST_F(CudaLayerNorm, GivesTheGradientsOfItsParameters) {
  for (const Sizes& sizes : all) {
    expect_right({"layer_norm_backward_parameters",
                  {},
                  {matrix(sizes, 1), statistic(sizes, 1), statistic(sizes, 2), matrix(sizes, 4)},
                  {output({sizes.width}), output({sizes.width})}});
  }
}

TEST_F(CudaLayerNorm, SumsTheColumnsOfABiasGradient) {
  for (const Sizes& sizes : all)
    expect_right({"linear_backward_bias", {}, {matrix(sizes, 1)}, {output({sizes.width})}});
  const Sizes long_one{9000, 3};  // more than the most chunks of the least rows
  expect_right({"linear_backward_bias", {}, {matrix(long_one, 1)}, {output({long_one.width})}});
}

}  // namespace
}  // namespace stowage::test
