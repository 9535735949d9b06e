#include "kernels/cpu/linear.h"

#include <ostream>

#include "tests/kernels/kernel_check.h"
#include "tests/support/printed_name.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct ColumnSumCase {
  std::int64_t rows, columns;

  template <class T>
  std::vector<T> run() const {
    const std::vector<T> x = numbers<T>(rows * columns, 1);
    std::vector<T> sum = unwritten<T>(columns);
    column_sum(rows, columns, x.data(), sum.data());
    return sum;
  }

  std::vector<double> reference() const {
    const std::vector<double> x = numbers<double>(rows * columns, 1);
    std::vector<double> sum(static_cast<std::size_t>(columns));
    for (std::size_t i = 0; i < x.size(); ++i) sum[i % sum.size()] += x[i];
    return sum;
  }
};

void PrintTo(const ColumnSumCase& sum, std::ostream* out) { *out << sum.rows << 'x' << sum.columns; }

class ColumnSum : public ::testing::TestWithParam<ColumnSumCase> {};

TEST_P(ColumnSum, AgreesWithSums) { expect_close(GetParam().run<double>(), GetParam().reference(), 1e-12); }

// An element passes through at most 64 additions of its run and one for each run after it.
TEST_P(ColumnSum, WorkTypeAgrees) {
  const auto rows = static_cast<double>(GetParam().rows);
  expect_work_type_agrees(GetParam(), (64 + rows / 64) * rows * unit);
}

TEST_P(ColumnSum, HasTheSameBitsForAnyThreadCount) { expect_same_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Shapes, ColumnSum,
                         ::testing::Values(ColumnSumCase{1, 1}, ColumnSumCase{64, 64},
                                           ColumnSumCase{1000, 211}, ColumnSumCase{63, 1000}),
                         stowage::test::printed_name);

TEST(ColumnSum, AddsToWhatIsThere) {
  const std::vector<double> x{1, 2, 3, 4, 5, 6};
  std::vector<double> sum{10, 20};
  column_sum(3, 2, x.data(), sum.data(), true);
  EXPECT_EQ(sum, (std::vector<double>{19, 32}));
}

}  // namespace
}  // namespace stowage::cpu
