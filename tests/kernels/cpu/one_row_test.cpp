#include "kernels/cpu/one_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "src/base/parallel_for.h"
#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

template <class T>
std::vector<T> row_values(std::int64_t count, unsigned seed) {
  std::vector<T> values;
  for (const float value : numbers<float>(count, seed)) values.emplace_back(value);
  return values;
}

// Row by matrix, whose rows have a gap behind them, in f64.
template <class T>
void expect_product(std::int64_t n, std::int64_t k, bool transposed, bool biased) {
  SCOPED_TRACE(::testing::Message() << n << " x " << k << (transposed ? " transposed" : "")
                                    << (biased ? " biased" : ""));
  const std::int64_t stride = (transposed ? k : n) + 3;
  const auto x = row_values<T>(k, 1), b = row_values<T>((transposed ? n : k) * stride, 2),
             bias = row_values<T>(n, 3);
  std::vector<T> rounded_sums = unwritten<T>(n);
  std::vector<float> sums = unwritten<float>(n);
  const Matrix<T> matrix{b.data(), stride, transposed};
  const Product<T> narrow_product{1, n, k, {x.data(), k}, matrix, rounded_sums.data(), n};
  const Product<T, float> wide_product{1, n, k, {x.data(), k}, matrix, sums.data(), n};
  ASSERT_TRUE(is_one_narrow_row(narrow_product, false));
  multiply(narrow_product, biased ? bias.data() : nullptr);
  multiply(wide_product, biased ? bias.data() : nullptr);
  for (std::int64_t i = 0; i < n; ++i) {
    double right = biased ? static_cast<double>(wide(bias[static_cast<std::size_t>(i)])) : 0;
    double size = std::abs(right);
    for (std::int64_t j = 0; j < k; ++j) {
      const auto at = static_cast<std::size_t>(transposed ? i * stride + j : j * stride + i);
      const double term =
          static_cast<double>(wide(x[static_cast<std::size_t>(j)])) * static_cast<double>(wide(b[at]));
      right += term;
      size += std::abs(term);
    }
    const float found = sums[static_cast<std::size_t>(i)];
    ASSERT_NEAR(found, right, size * 1e-6) << i;
    EXPECT_EQ(rounded_sums[static_cast<std::size_t>(i)].bits, T(found).bits) << "rounded once";
  }
}

template <class T>
class OneRow : public ::testing::Test {};
using NarrowTypes = ::testing::Types<Bfloat16, Float16>;
TYPED_TEST_SUITE(OneRow, NarrowTypes);

TYPED_TEST(OneRow, IsTheProduct) {
  for (const bool transposed : {false, true})
    for (const bool biased : {false, true})
      for (const std::int64_t n : {1, 31, 300})
        for (const std::int64_t k : {1, 15, 32, 64, 97, 259})
          expect_product<TypeParam>(n, k, transposed, biased);
}

TYPED_TEST(OneRow, HasTheSameBitsForAnyNumberOfThreads) {
  constexpr std::int64_t n = 700, k = 130;
  const auto x = row_values<TypeParam>(k, 1), b = row_values<TypeParam>(n * k, 2);
  for (const bool transposed : {false, true}) {
    const auto sums = [&](int threads) {
      set_parallel_threads(threads);
      std::vector<float> found = unwritten<float>(n);
      multiply(Product<TypeParam, float>{
          1, n, k, {x.data(), k}, {b.data(), transposed ? k : n, transposed}, found.data(), n});
      set_parallel_threads(0);
      return found;
    };
    EXPECT_EQ(sums(1), sums(3));
  }
}

}  // namespace
}  // namespace stowage::cpu
