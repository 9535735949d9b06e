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

// The middle block of a table of three.
class CudaEmbeddingRows : public CudaEmbedding {
 protected:
  static Attributes middle(const Sizes& sizes) {
    return {{"first_row", sizes.vocabulary},
            {"vocabulary", 3 * sizes.vocabulary},
            {"first_token", std::int64_t{1}}};
  }
  // The whole batch's, of which the op takes all but the first. A third of them are in the block, the first
  // and the last of its rows among them.
  static TestOperand batch(const Sizes& sizes) {
    std::vector<double> values = whole_draws(sizes.tokens + 1, 1, static_cast<int>(3 * sizes.vocabulary));
    values[1] = static_cast<double>(sizes.vocabulary);
    values.back() = static_cast<double>(2 * sizes.vocabulary - 1);
    return {Role::i32, {sizes.tokens + 1}, values};
  }
};

TEST_F(CudaEmbeddingRows, LooksUpRowsThatTheBlockHas) {
  for (const Sizes& sizes : all) {
    KernelCase of{"embedding",
                  middle(sizes),
                  {batch(sizes), matrix(sizes.vocabulary, sizes.width, 2)},
                  {output(sizes.tokens, sizes.width)}};
    expect_right(of);
    of.reads.push_back(matrix(sizes.tokens, sizes.width, 3));
    expect_right(of, 1);
    of.in_place = {{0, 2}};
    expect_right(of);
  }
}

TEST_F(CudaEmbeddingRows, SumTheGradientOfTheBlock) {
  for (const Sizes& sizes : all) {
    expect_right({"embedding_backward",
                  middle(sizes),
                  {batch(sizes), matrix(sizes.tokens, sizes.width, 4)},
                  {output(sizes.vocabulary, sizes.width)}},
                 1);
  }
}

// Tokens that are sorted first. Whole numbers: the sums are exact.
TEST_F(CudaEmbeddingRows, SortManyTokensOfALargeBlock) {
  const Sizes sizes{5000, 1000, 3001, 350};
  const std::vector<double> dy = whole_draws(sizes.tokens * sizes.width, 2, 16);
  const KernelCase of{"embedding_backward",
                      middle(sizes),
                      {batch(sizes), {Role::work, {sizes.tokens, sizes.width}, dy}},
                      {output(sizes.vocabulary, sizes.width)}};
  EXPECT_TRUE(widened(run_cuda(of, DataType::f32)[0], DataType::f32) ==
              widened(run_cpu(of, DataType::f64, DataType::f32)[0], DataType::f64));
}

// A token that no block has: the first block writes NaN for it, which the others leave there.
TEST_F(CudaEmbeddingRows, ATokenOutsideTheTableShows) {
  const TestOperand wrong{Role::i32, {4}, {1, -1, 6, 3}};
  KernelCase first{"embedding",
                   {{"first_row", std::int64_t{0}}, {"vocabulary", std::int64_t{6}}},
                   {wrong, matrix(3, 2, 1)},
                   {output(4, 2)}};
  KernelCase second = first;
  second.attributes["first_row"] = std::int64_t{3};
  second.reads.push_back({Role::work, {4, 2}, widened(run_cuda(first, DataType::f32)[0], DataType::f32)});
  for (const bool in_place : {false, true}) {
    if (in_place) second.in_place = {{0, 2}};
    const std::vector<double> y = widened(run_cuda(second, DataType::f32)[0], DataType::f32);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 2 == 1 || i / 2 == 2) << i;
  }
  KernelCase backward{
      "embedding_backward", first.attributes, {wrong, {Role::work, {4, 1}, {1, 2, 4, 8}}}, {output(3, 1)}};
  EXPECT_EQ(widened(run_cuda(backward, DataType::f32)[0], DataType::f32), (std::vector<double>{0, 1, 0}));
  // Here the block has rows behind the vocabulary.
  backward.attributes["first_row"] = std::int64_t{4};
  EXPECT_EQ(widened(run_cuda(backward, DataType::f32)[0], DataType::f32), (std::vector<double>{0, 0, 4}));
}

}  // namespace
}  // namespace stowage::test
