#include <array>
#include <cmath>

#include "stowage/error.h"
#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

struct Scored {
  std::int64_t samples, heads, sequence, head_width;
  bool causal = false, padded = false;
  std::int64_t key_heads = 0;

  std::int64_t tokens() const { return samples * sequence; }
  std::int64_t group() const { return key_heads > 0 ? heads / key_heads : 1; }
  std::int64_t packed_width() const { return (heads + 2 * heads / group()) * head_width; }
};

class CudaKeptRows : public CudaKernelTest {
 protected:
  // 0 and 1, but 1 for the first token of a sample.
  static std::vector<double> seen(std::int64_t tokens, std::int64_t sequence) {
    std::vector<double> values = whole_draws(tokens, 5, 2);
    for (std::int64_t n = 0; n < tokens; n += sequence) values[static_cast<std::size_t>(n)] = 1;
    return values;
  }

  // In a second micro-batch, where there is padding.
  static KernelCase scores(const Scored& of) {
    Attributes attributes{{"heads", of.heads},
                          {"sequence", of.sequence},
                          {"causal", std::int64_t{of.causal}},
                          {"dropout", 0.25},
                          {"key", std::int64_t{21}}};
    if (of.key_heads > 0) attributes["key_heads"] = of.key_heads;
    std::vector<TestOperand> reads{
        {Role::work, {of.tokens(), of.packed_width()}, draws(of.tokens() * of.packed_width(), 1, 2)}};
    if (of.padded) {
      attributes["first_token"] = of.tokens();
      reads.push_back({Role::i32, {2 * of.tokens()}, seen(2 * of.tokens(), of.sequence)});
    }
    const KernelCase forward{"attention",
                             attributes,
                             reads,
                             {{Role::work, {of.tokens(), of.heads * of.head_width}, {}},
                              {Role::sums, {of.samples, of.heads, of.sequence}, {}}}};
    const std::vector<double> log_sum_exp =
        widened(run_cpu(forward, DataType::f64, DataType::f64)[1], DataType::f64);
    reads.insert(reads.begin() + 1, {Role::sums, {of.samples, of.heads, of.sequence}, log_sum_exp});
    return {"attention_scores",
            attributes,
            reads,
            {{Role::sums, {of.tokens()}, {}}, {Role::sums, {of.samples, of.heads, of.sequence}, {}}}};
  }

  static KernelCase top(std::int64_t samples, std::int64_t sequence, std::int64_t keep, int values,
                        bool padded) {
    const std::int64_t tokens = samples * sequence;
    KernelCase of{"top_tokens",
                  {{"sequence", sequence}, {"keep", keep}},
                  {{Role::sums, {tokens}, whole_draws(tokens, 3, values)}},
                  {{Role::i32, {samples * keep}, {}}}};
    if (!padded) return of;
    of.attributes["first_token"] = tokens;
    of.reads.push_back({Role::i32, {2 * tokens}, seen(2 * tokens, sequence)});
    return of;
  }
  void expect_same_rows(const KernelCase& of) {
    EXPECT_EQ(run_cuda(of, DataType::f32), run_cpu(of, DataType::f32, DataType::f32));
  }

  // Some rows of a matrix, the first and the last among them.
  static TestOperand rows(std::int64_t tokens) {
    std::vector<double> kept{0};
    for (std::int64_t row = 2; row < tokens - 1; row += 1 + row % 3) kept.push_back(static_cast<double>(row));
    if (tokens > 1) kept.push_back(static_cast<double>(tokens - 1));
    return {Role::i32, {std::ssize(kept)}, kept};
  }
  static TestOperand matrix(std::int64_t rows, std::int64_t width, unsigned seed) {
    return {Role::work, {rows, width}, draws(rows * width, seed)};
  }
  static TestOperand empty(std::int64_t rows, std::int64_t width) { return {Role::work, {rows, width}, {}}; }
};

// One token; sequences shorter than a tile, whole tiles and not; heads that fill 64, 128 and 256 columns and
// that do not, and whose number is no power of two.
TEST_F(CudaKeptRows, ScoresAgreeWithTheCpus) {
  for (const Scored& of : {Scored{1, 1, 1, 4},
                           {2, 3, 19, 5, false, true},
                           {1, 5, 128, 64},
                           {1, 1, 150, 32, true},
                           {1, 2, 70, 80, true, true},
                           {1, 1, 37, 192, false, true},
                           {2, 6, 21, 8, false, true, 2}})
    expect_right(scores(of));
  expect_right(scores({1, 2, 37, 16, false, true}), 1);
}

TEST_F(CudaKeptRows, HeadsThatAreTooWideAreRefused) {
  EXPECT_THROW(run_cuda(scores({1, 1, 2, 257}), DataType::bf16), InvalidInput);
}

// Few values make many ties; a sample may be longer than a block has threads.
TEST_F(CudaKeptRows, TheSameTokensAreChosen) {
  for (const auto& [samples, sequence, keep, values] : {std::array<std::int64_t, 4>{1, 1, 1, 3},
                                                        {3, 7, 4, 3},
                                                        {2, 300, 150, 5},
                                                        {2, 300, 1, 1},
                                                        {3, 256, 256, 9},
                                                        {1, 600, 301, 100'000},
                                                        {2, 64, 63, 2}}) {
    expect_same_rows(top(samples, sequence, keep, static_cast<int>(values), false));
    expect_same_rows(top(samples, sequence, keep, static_cast<int>(values), true));
  }
}

TEST_F(CudaKeptRows, RowsAreTakenAndAddedBack) {
  for (const auto& [tokens, width] : {std::array<std::int64_t, 2>{1, 1}, {15, 7}, {40, 64}, {9, 1100}}) {
    const TestOperand kept = rows(tokens);
    const std::int64_t count = kept.shape[0];
    for (const std::int64_t offset : {0, 1}) {
      expect_right({"take_rows", {}, {matrix(tokens, width, 1), kept}, {empty(count, width)}}, offset);
      expect_right({"take_rows_backward", {}, {matrix(count, width, 2), kept}, {empty(tokens, width)}},
                   offset);
      KernelCase add{
          "add_rows", {}, {matrix(tokens, width, 1), matrix(count, width, 2), kept}, {empty(tokens, width)}};
      expect_right(add, offset);
      add.in_place = {{0, 0}};
      expect_right(add, offset);
    }
  }
}

// As tokens outside an embedding's table.
TEST_F(CudaKeptRows, RowsOutsideTheMatrixAreNoNumbersAndAddNothing) {
  const TestOperand kept{Role::i32, {3}, {-0x1p31, 1, 0x1p31 - 1}};
  const KernelCase take{"take_rows", {}, {matrix(4, 2, 1), kept}, {empty(3, 2)}};
  const std::vector<double> taken = widened(run_cuda(take, DataType::f32)[0], DataType::f32);
  for (const std::size_t i : {0, 1, 4, 5}) EXPECT_TRUE(std::isnan(taken[i])) << i;
  const KernelCase add{"add_rows", {}, {matrix(4, 2, 1), matrix(3, 2, 2), kept}, {empty(4, 2)}};
  const std::vector<double> sum = widened(run_cuda(add, DataType::f32)[0], DataType::f32);
  for (const std::size_t i : {0, 1, 4, 5, 6, 7}) EXPECT_EQ(sum[i], add.reads[0].values[i]) << i;
}

}  // namespace
}  // namespace stowage::test
