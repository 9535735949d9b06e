#include "kernels/cpu/elementwise.h"

#include <algorithm>
#include <ostream>

#include "stowage/tree_sum.h"
#include "tests/kernels/kernel_check.h"
#include "tests/support/printed_name.h"

namespace stowage::cpu {

static void PrintTo(GeluForm form, std::ostream* out) { *out << (form == GeluForm::tanh ? "tanh" : "erf"); }

namespace {

using namespace stowage::test;

constexpr std::int64_t count = 100003;  // several chunks and a ragged end

struct GeluCase {
  GeluForm form;

  // y, dx
  template <class T>
  std::vector<T> run() const {
    const std::vector<T> x = numbers<T>(count, 1, 8);
    const std::vector<T> dy = numbers<T>(count, 2);
    std::vector<T> y = unwritten<T>(count);
    std::vector<T> dx = unwritten<T>(count);
    gelu(form, count, x.data(), y.data());
    gelu_backward(form, count, x.data(), dy.data(), dx.data());
    return joined({y, dx});
  }

  // tanh and erf written out; derivatives by central differences of them.
  double value(double x) const {
    if (form == GeluForm::erf) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
  }
  double slope(double x) const { return (value(x + 1e-5) - value(x - 1e-5)) / 2e-5; }
};

class Gelu : public ::testing::TestWithParam<GeluForm> {
 protected:
  GeluCase gelu_case{GetParam()};
};

TEST_P(Gelu, AgreesWithTheDefinition) {
  const std::vector<double> found = gelu_case.run<double>();
  const std::vector<double> x = numbers<double>(count, 1, 8);
  const std::vector<double> dy = numbers<double>(count, 2);
  std::vector<double> y;
  std::vector<double> dx;
  for (std::size_t i = 0; i < x.size(); ++i) {
    y.push_back(gelu_case.value(x[i]));
    dx.push_back(dy[i] * gelu_case.slope(x[i]));
  }
  expect_close({found.begin(), found.begin() + count}, y, 1e-14);
  expect_close({found.begin() + count, found.end()}, dx, 1e-9);  // differences lose half the digits
}

// |y| goes up to 8 and the functions inside are good to 4 roundings; what cancels in the derivative
// (x * density) is at most 0.25, and u grows to 40, whose rounding shifts e^u by as much relatively.
TEST_P(Gelu, WorkTypeAgrees) { expect_work_type_agrees(gelu_case, 32 * unit); }

TEST_P(Gelu, BackwardMayOverwriteTheGradient) {
  const std::vector<float> x = numbers<float>(count, 1, 8);
  const std::vector<float> dy = numbers<float>(count, 2);
  std::vector<float> apart = unwritten<float>(count);
  std::vector<float> in_place = dy;
  gelu_backward(GetParam(), count, x.data(), dy.data(), apart.data());
  gelu_backward(GetParam(), count, x.data(), in_place.data(), in_place.data());
  EXPECT_EQ(apart, in_place);
}

TEST_P(Gelu, HasTheSameBitsForAnyThreadCount) { expect_same_bits(gelu_case); }

INSTANTIATE_TEST_SUITE_P(Forms, Gelu, ::testing::Values(GeluForm::tanh, GeluForm::erf),
                         stowage::test::printed_name);

struct AddCase {
  template <class T>
  std::vector<T> run() const {
    const std::vector<T> a = numbers<T>(count, 1);
    const std::vector<T> b = numbers<T>(count, 2);
    std::vector<T> y = unwritten<T>(count);
    add(count, a.data(), b.data(), y.data());
    return y;
  }
};

TEST(Add, AddsExactly) {
  const std::vector<float> a = numbers<float>(count, 1);
  const std::vector<float> b = numbers<float>(count, 2);
  std::vector<float> sum;
  std::transform(a.begin(), a.end(), b.begin(), std::back_inserter(sum), std::plus<>());
  EXPECT_EQ(AddCase{}.run<float>(), sum);
  std::vector<float> in_place = a;
  add(count, in_place.data(), b.data(), in_place.data());
  EXPECT_EQ(in_place, sum);
}

TEST(Add, HasTheSameBitsForAnyThreadCount) { expect_same_bits(AddCase{}); }

template <class T>
class TreeSumOfRows : public ::testing::Test {};
using TreeSumTypes = ::testing::Types<float, double, Bfloat16, Float16>;
TYPED_TEST_SUITE(TreeSumOfRows, TreeSumTypes);

// And reads nothing behind the elements that count.
TYPED_TEST(TreeSumOfRows, HasTheBitsOfATreeOfAdds) {
  using Row = std::vector<TypeParam>;
  for (std::uint32_t rows = 1; rows <= 64; rows *= 2) {
    for (const auto& [length, counted] : {std::pair{1, 1}, {1, 0}, {513, 512}, {17000, 16999}, {40000, 3}}) {
      TreeSum<Row> tree(rows, rows);
      Row all;
      for (std::uint32_t row = 0; row < rows; ++row) {
        // Sums of f64 would be exact if all numbers were of one size.
        const int exponent = sizeof(TypeParam) == sizeof(double) ? static_cast<int>(13 * row % 60) : 0;
        Row values = numbers<TypeParam>(length, row, std::ldexp(1.0F, exponent));
        std::fill(values.begin() + counted, values.end(), TypeParam(NAN));
        all.insert(all.end(), values.begin(), values.end());
        tree.add(std::move(values), [](const Row& left, const Row& right) {
          Row sum(left.size());
          add(static_cast<std::int64_t>(sum.size()), left.data(), right.data(), sum.data());
          return sum;
        });
      }
      Row right = *tree.total();
      std::fill(right.begin() + counted, right.end(), TypeParam{});
      Row found = unwritten<TypeParam>(length);
      tree_sum(rows, length, counted, all.data(), found.data());
      EXPECT_EQ(std::memcmp(found.data(), right.data(), right.size() * sizeof(TypeParam)), 0)
          << rows << " rows of " << length;
    }
  }
}

struct TreeSumCase {
  template <class T>
  std::vector<T> run() const {
    std::vector<T> y = unwritten<T>(count);
    tree_sum(4, count, count - 5, numbers<T>(4 * count, 1).data(), y.data());
    return y;
  }
};

TEST(TreeSumOfRows, HasTheSameBitsForAnyThreadCount) { expect_same_bits(TreeSumCase{}); }

struct DropoutCase {
  RandomStream stream{12345, 7, 3};
  double probability = 0.2;

  template <class T>
  std::vector<T> run() const {
    const std::vector<T> x(static_cast<std::size_t>(count), T{1});
    std::vector<T> y = unwritten<T>(count);
    dropout(stream, probability, count, x.data(), y.data());
    return y;
  }
};

TEST(Dropout, KeepsItsShareAndItsMean) {
  for (double probability : {0.1, 0.5, 0.9}) {
    const std::vector<double> y = DropoutCase{{1, 2, 3}, probability}.run<double>();
    const auto dropped = static_cast<double>(std::count(y.begin(), y.end(), 0.0));
    const double deviation = std::sqrt(count * probability * (1 - probability));
    EXPECT_NEAR(dropped, count * probability, 4 * deviation);
    const auto kept = std::count(y.begin(), y.end(), 1 / (1 - probability));
    EXPECT_EQ(static_cast<double>(kept) + dropped, count);
  }
}

TEST(Dropout, MaskIsAFunctionOfSeedKeyAndStep) {
  const DropoutCase base;
  const std::vector<float> mask = base.run<float>();
  EXPECT_EQ(mask, base.run<float>());
  auto equal_share = [&](const RandomStream& stream) {
    const std::vector<float> other = DropoutCase{stream}.run<float>();
    std::int64_t equal = 0;
    for (std::size_t i = 0; i < mask.size(); ++i) equal += mask[i] == other[i] ? 1 : 0;
    return static_cast<double>(equal) / count;
  };
  // Independent masks agree with probability 0.8^2 + 0.2^2; four deviations are 0.006.
  EXPECT_NEAR(equal_share({12346, 7, 3}), 0.68, 0.006);
  EXPECT_NEAR(equal_share({12345 + (1ULL << 32U), 7, 3}), 0.68, 0.006);
  EXPECT_NEAR(equal_share({12345, 8, 3}), 0.68, 0.006);
  EXPECT_NEAR(equal_share({12345, 7, 4}), 0.68, 0.006);
}

TEST(Dropout, BackwardDropsWhatForwardDropped) {
  const DropoutCase drop;
  const std::vector<double> mask = drop.run<double>();
  const std::vector<double> dy = numbers<double>(count, 9);
  std::vector<double> dx = dy;  // in place
  dropout(drop.stream, drop.probability, count, dx.data(), dx.data());
  for (std::size_t i = 0; i < mask.size(); ++i) ASSERT_EQ(dx[i], dy[i] * mask[i]);
}

TEST(Dropout, WorkTypesShareOneMask) {
  const std::vector<float> narrow = DropoutCase{}.run<float>();
  const std::vector<double> wide = DropoutCase{}.run<double>();
  for (std::size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(narrow[i] == 0, wide[i] == 0);
}

TEST(Dropout, HasTheSameBitsForAnyThreadCount) { expect_same_bits(DropoutCase{}); }

struct TanhCase {
  // y, dx
  template <class T>
  std::vector<T> run() const {
    const std::vector<T> x = numbers<T>(count, 1, 8);
    std::vector<T> y = unwritten<T>(count);
    std::vector<T> dx = numbers<T>(count, 2);
    tanh(count, x.data(), y.data());
    tanh_backward(count, y.data(), dx.data(), dx.data());  // in place
    return joined({y, dx});
  }
};

TEST(Tanh, AgreesWithTheDefinition) {
  const std::vector<double> x = numbers<double>(count, 1, 8);
  const std::vector<double> dy = numbers<double>(count, 2);
  std::vector<double> y, dx;
  for (std::size_t i = 0; i < x.size(); ++i) {
    y.push_back(std::tanh(x[i]));
    dx.push_back(dy[i] / (std::cosh(x[i]) * std::cosh(x[i])));
  }
  expect_close(TanhCase{}.run<double>(), joined({y, dx}), 1e-14);
}

// y may be off by two roundings, and 1 - y^2 by twice as much.
TEST(Tanh, WorkTypeAgrees) { expect_work_type_agrees(TanhCase{}, 8 * unit); }

TEST(Tanh, HasTheSameBitsForAnyThreadCount) { expect_same_bits(TanhCase{}); }

}  // namespace
}  // namespace stowage::cpu
