#include "kernels/cpu/gemm.h"

#include <filesystem>
#include <iterator>
#include <ostream>
#include <thread>

#include "tests/kernels/kernel_check.h"
#include "tests/support/printed_name.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct GemmCase {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, biased = false;
  std::int64_t padding = 0;  // between the rows of all three matrices
  bool narrow = false;       // numbers that bf16 holds

  std::int64_t a_stride() const { return (transpose_a ? m : k) + padding; }
  std::int64_t b_stride() const { return (transpose_b ? k : n) + padding; }
  std::int64_t a_size() const { return (transpose_a ? k : m) * a_stride(); }
  std::int64_t b_size() const { return (transpose_b ? n : k) * b_stride(); }

  template <class T>
  Product<T> product(const std::vector<T>& a, const std::vector<T>& b, std::vector<T>& c) const {
    return {m,        n,          k, {a.data(), a_stride(), transpose_a}, {b.data(), b_stride(), transpose_b},
            c.data(), n + padding};
  }

  template <class T>
  std::vector<T> values(std::int64_t count, unsigned seed) const {
    std::vector<T> all;
    for (const float value : numbers<float>(count, seed))
      all.push_back(static_cast<T>(narrow ? static_cast<float>(Bfloat16(value)) : value));
    return all;
  }

  template <class T>
  std::vector<T> run() const {
    const std::vector<T> a = values<T>(a_size(), 1);
    const std::vector<T> b = values<T>(b_size(), 2);
    const std::vector<T> bias = values<T>(n, 3);
    std::vector<T> c = unwritten<T>(m * (n + padding));
    multiply<T>(product(a, b, c), biased ? bias.data() : nullptr);
    return without_padding(c);
  }

  template <class T>
  std::vector<T> without_padding(const std::vector<T>& c) const {
    std::vector<T> dense;
    for (std::int64_t row = 0; row < m; ++row) {
      const auto begin = c.begin() + row * (n + padding);
      dense.insert(dense.end(), begin, begin + n);
      for (auto gap = begin + n; gap < begin + n + padding; ++gap) EXPECT_TRUE(std::isnan(wide(*gap)));
    }
    return dense;
  }

  // f32 sums of bf16: the bias's place is taken by a second product, added.
  std::vector<float> twice() const {
    const std::vector<Bfloat16> a = values<Bfloat16>(a_size(), 1);
    const std::vector<Bfloat16> b = values<Bfloat16>(b_size(), 2);
    std::vector<float> c = unwritten<float>(m * (n + padding));
    const Product<Bfloat16, float> product{
        m,        n,          k, {a.data(), a_stride(), transpose_a}, {b.data(), b_stride(), transpose_b},
        c.data(), n + padding};
    multiply(product);
    multiply(product, static_cast<const Bfloat16*>(nullptr), true);
    return without_padding(c);
  }

  // Row times column, straight; of magnitudes if asked.
  std::vector<double> reference(bool magnitudes) const {
    const std::vector<double> a = values<double>(a_size(), 1);
    const std::vector<double> b = values<double>(b_size(), 2);
    const std::vector<double> bias = values<double>(n, 3);
    auto of = [&](double value) { return magnitudes ? std::abs(value) : value; };
    std::vector<double> c;
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = biased ? of(bias[static_cast<std::size_t>(j)]) : 0;
        for (std::int64_t l = 0; l < k; ++l) {
          const std::int64_t left = transpose_a ? l * a_stride() + i : i * a_stride() + l;
          const std::int64_t right = transpose_b ? j * b_stride() + l : l * b_stride() + j;
          sum += of(a[static_cast<std::size_t>(left)] * b[static_cast<std::size_t>(right)]);
        }
        c.push_back(sum);
      }
    }
    return c;
  }
};

void PrintTo(const GemmCase& gemm, std::ostream* out) {
  *out << gemm.m << 'x' << gemm.n << 'x' << gemm.k << (gemm.transpose_a ? " A transposed" : "")
       << (gemm.transpose_b ? " B transposed" : "") << (gemm.biased ? " biased" : "")
       << (gemm.padding > 0 ? " padded" : "");
}

class Gemm : public ::testing::TestWithParam<GemmCase> {};

// A sum of k products, in any order, is off by at most (k + 1) roundings of the sum of magnitudes.
TEST_P(Gemm, AgreesWithRowTimesColumn) {
  const GemmCase& gemm = GetParam();
  std::vector<double> bounds = gemm.reference(true);
  for (double& bound : bounds) bound *= unit * static_cast<double>(gemm.k + 1);
  expect_close(widened(gemm.run<float>()), gemm.reference(false), bounds);
  for (double& bound : bounds) bound *= 0x1p-29;  // f64 has 29 bits more
  expect_close(gemm.run<double>(), gemm.reference(false), bounds);
}

TEST_P(Gemm, HasTheSameBitsForAnyThreadCount) { expect_same_bits(GetParam()); }

std::vector<NarrowProducts> ways_of_this_cpu() {
  const NarrowProducts best = narrow_products();
  return best == NarrowProducts::widened ? std::vector{best} : std::vector{NarrowProducts::widened, best};
}

// f32 sums as above, rounded once.
TEST_P(Gemm, AgreesInBf16HoweverItIsComputed) {
  GemmCase gemm = GetParam();
  gemm.narrow = true;
  for (const NarrowProducts way : ways_of_this_cpu()) {
    set_narrow_products(way);
    const std::vector<double> right = gemm.reference(false);
    std::vector<double> bounds = gemm.reference(true);
    for (double& bound : bounds) bound *= unit * static_cast<double>(gemm.k + 2);
    for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] += bf16_unit * std::abs(right[i]);
    expect_close(widened(gemm.run<Bfloat16>()), right, bounds);
    expect_same_bits_in<Bfloat16>(gemm);
  }
}

TEST_P(Gemm, AddsProductsOfBf16InF32HoweverTheyAreComputed) {
  GemmCase gemm = GetParam();
  gemm.narrow = true;
  gemm.biased = false;
  for (const NarrowProducts way : ways_of_this_cpu()) {
    set_narrow_products(way);
    std::vector<double> right = gemm.reference(false);
    std::vector<double> bounds = gemm.reference(true);
    for (double& value : right) value *= 2;
    for (double& bound : bounds) bound *= 2 * unit * static_cast<double>(2 * gemm.k + 1);
    expect_close(widened(gemm.twice()), right, bounds);
  }
}

// Whole numbers in [-range, range].
template <class N>
std::vector<N> whole_numbers(std::int64_t count, unsigned seed, int range) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> draw(-range, range);
  std::vector<N> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(N(static_cast<float>(draw(generator))));
  return values;
}

// Sums of whole numbers in f32 are exact: C holds the products, the bias and its old values, rounded once.
template <class N>
void expect_added_and_rounded_once(const GemmCase& gemm) {
  const std::vector<N> a = whole_numbers<N>(gemm.a_size(), 1, 15), b = whole_numbers<N>(gemm.b_size(), 2, 15),
                       bias = whole_numbers<N>(gemm.n, 3, 100),
                       before = whole_numbers<N>(gemm.m * (gemm.n + gemm.padding), 4, 255);
  std::vector<N> c = before;
  std::vector<float> sums;
  for (const N value : before) sums.push_back(wide(value));
  const Product<N> product = gemm.product(a, b, c);
  const auto [m, n, k, left, right, to, stride] = product;
  const N* const added = gemm.biased ? bias.data() : nullptr;
  multiply(product, added, true);
  multiply(Product<N, float>{m, n, k, left, right, sums.data(), stride}, added, true);
  std::int64_t differing = 0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    ASSERT_EQ(wide(c[i]), wide(N(sums[i]))) << "element " << i;
    const float products = wide(N(sums[i] - wide(before[i])));  // rounded before they are added
    differing += wide(N(products + wide(before[i]))) != wide(c[i]) ? 1 : 0;
  }
  // Large cases in bf16 have elements that a second rounding would change.
  if (std::is_same_v<N, Bfloat16> && gemm.m * gemm.n > 10'000) {
    EXPECT_GT(differing, 0);
  }
}

TEST_P(Gemm, AddsToNarrowNumbersInF32AndRoundsOnce) {
  for (const NarrowProducts way : ways_of_this_cpu()) {
    set_narrow_products(way);
    expect_added_and_rounded_once<Bfloat16>(GetParam());
    expect_added_and_rounded_once<Float16>(GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Gemm,
                         ::testing::Values(GemmCase{1, 1, 1}, GemmCase{3, 5, 7, true, true, true},
                                           GemmCase{64, 64, 64}, GemmCase{531, 419, 70},
                                           GemmCase{531, 419, 70, true, false, false},
                                           GemmCase{531, 419, 70, false, true, true},
                                           GemmCase{70, 300, 1300, true, false, false},
                                           GemmCase{300, 200, 33, false, false, true, 5},
                                           GemmCase{300, 200, 33, true, true, false, 3}),
                         stowage::test::printed_name);

TEST(MultiplyHere, ScalesAndAdds) {
  const std::vector<float> a{1, 2, 3, 4};
  const std::vector<float> b{5, 6, 7, 8};
  std::vector<float> c{100, 200, 300, 400};
  multiply_here<float>({2, 2, 2, {a.data(), 2}, {b.data(), 2}, c.data(), 2}, 2.0F, true);
  EXPECT_EQ(c, (std::vector<float>{138, 244, 386, 500}));
  std::vector<double> wide{100, 200, 300, 400};
  const std::vector<double> a2{1, 2, 3, 4};
  const std::vector<double> b2{5, 6, 7, 8};
  multiply_here<double>({2, 2, 2, {a2.data(), 2}, {b2.data(), 2}, wide.data(), 2}, 2.0, true);
  EXPECT_EQ(wide, (std::vector<double>{138, 244, 386, 500}));
}

std::ptrdiff_t threads_of_this_process() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

// oneDNN would otherwise bring up a team of its own for a product of this size.
TEST(MultiplyHere, StartsNoThread) {
  const std::int64_t size = 512;
  const std::vector<float> a = numbers<float>(size * size, 1);
  std::vector<float> c(a.size());
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first
  const std::ptrdiff_t before = threads_of_this_process();
  std::ptrdiff_t during = 0;
  std::thread fresh([&] {
    multiply_here<float>({size, size, size, {a.data(), size}, {a.data(), size}, c.data(), size}, 1.0F, false);
    during = threads_of_this_process();
  });
  fresh.join();
  EXPECT_EQ(during, before + 1);
}

}  // namespace
}  // namespace stowage::cpu
