#include <cmath>

#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

struct Sizes {
  std::int64_t tokens, sequence, vocabulary, width;
};

class CudaEmbedding : public CudaKernelTest {
 protected:
  // One token; odd widths; wider than one column tile of f32; enough tokens for more than one segment, and
  // with a small table for more than one chunk.
  static constexpr Sizes all[] = {{1, 1, 1, 1},    {12, 6, 7, 5},      {10, 5, 19, 24},
                                  {6, 3, 4, 1100}, {2500, 500, 13, 8}, {3000, 1000, 40, 3}};

  static TestOperand tokens(const Sizes& sizes, unsigned seed) {
    return {Role::i32, {sizes.tokens}, whole_draws(sizes.tokens, seed, static_cast<int>(sizes.vocabulary))};
  }
  static TestOperand matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
    return {Role::work, {rows, columns}, draws(rows * columns, seed)};
  }
  static TestOperand output(std::int64_t rows, std::int64_t columns) {
    return {Role::work, {rows, columns}, {}};
  }
};

TEST_F(CudaEmbedding, LooksUpRowsAndAddsPositions) {
  for (const Sizes& sizes : all) {
    const TestOperand table = matrix(sizes.vocabulary, sizes.width, 2);
    const TestOperand positions = matrix(sizes.sequence, sizes.width, 3);
    expect_right({"embedding", {}, {tokens(sizes, 1), table}, {output(sizes.tokens, sizes.width)}});
    expect_right({"embedding",
                  {{"sequence", sizes.sequence}},
                  {tokens(sizes, 1), table, positions},
                  {output(sizes.tokens, sizes.width)}});
  }
}

TEST_F(CudaEmbedding, SumsTheGradientOfTheTable) {
  for (const Sizes& sizes : all) {
    expect_right({"embedding_backward",
                  {},
                  {tokens(sizes, 1), matrix(sizes.tokens, sizes.width, 4)},
                  {output(sizes.vocabulary, sizes.width)}});
  }
}

// Tokens that are sorted first: of all rows, of few rows, and some outside the table. Whole numbers: the sums
// are exact.
TEST_F(CudaEmbedding, SortsManyTokensOfALargeTable) {
  const Sizes sizes{5000, 1000, 3001, 350};
  for (const int rows : {3001, 3}) {
    TestOperand many = {Role::i32, {sizes.tokens}, whole_draws(sizes.tokens, 1, rows)};
    for (std::size_t i = 0; i < many.values.size(); i += 100) many.values[i] = i % 200 == 0 ? -1 : 3001;
    const std::vector<double> dy = whole_draws(sizes.tokens * sizes.width, 2, 16);
    std::vector<double> right(static_cast<std::size_t>(sizes.vocabulary * sizes.width));
    for (std::size_t n = 0; n < many.values.size(); ++n) {
      if (many.values[n] < 0 || many.values[n] > 3000) continue;
      const auto row = static_cast<std::size_t>(many.values[n] * static_cast<double>(sizes.width));
      const std::size_t from = n * static_cast<std::size_t>(sizes.width);
      for (std::size_t i = 0; i < static_cast<std::size_t>(sizes.width); ++i) right[row + i] += dy[from + i];
    }
    const KernelCase of{"embedding_backward",
                        {},
                        {many, {Role::work, {sizes.tokens, sizes.width}, dy}},
                        {output(sizes.vocabulary, sizes.width)}};
    EXPECT_EQ(widened(run_cuda(of, DataType::f32)[0], DataType::f32), right);
  }
}

TEST_F(CudaEmbedding, SumsOneTokenThroughout) {
  const Sizes sizes{1500, 500, 9, 12};
  TestOperand same = tokens(sizes, 1);
  for (double& token : same.values) token = 7;
  expect_right({"embedding_backward",
                {},
                {same, matrix(sizes.tokens, sizes.width, 4)},
                {output(sizes.vocabulary, sizes.width)}});
}

TEST_F(CudaEmbedding, SumsTheGradientOfThePositions) {
  for (const Sizes& sizes : all) {
    expect_right({"position_backward",
                  {{"sequence", sizes.sequence}},
                  {matrix(sizes.tokens, sizes.width, 5)},
                  {output(sizes.sequence, sizes.width)}});
  }
}

// Tokens are not on the host to be checked: a wrong one shows as NaN, and touches nothing else.
TEST_F(CudaEmbedding, ATokenOutsideTheTableShows) {
  const TestOperand wrong{Role::i32, {4}, {1, -1, 3, 0}};
  const std::vector<double> y = widened(
      run_cuda({"embedding", {}, {wrong, matrix(3, 2, 1)}, {output(4, 2)}}, DataType::f32)[0], DataType::f32);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 2 == 1 || i / 2 == 2) << i;
  const std::vector<double> dtable = widened(
      run_cuda({"embedding_backward", {}, {wrong, {Role::work, {4, 1}, {1, 2, 4, 8}}}, {output(3, 1)}},
               DataType::f32)[0],
      DataType::f32);
  EXPECT_EQ(dtable, (std::vector<double>{8, 1, 0}));
}

}  // namespace
}  // namespace stowage::test
