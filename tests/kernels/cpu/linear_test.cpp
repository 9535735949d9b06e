#include "kernels/cpu/linear.h"

#include "tests/kernels/kernel_check.h"
#include "tests/support/printed_name.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct LinearCase {
  LinearShape shape{300, 70, 210, false};

  // y, dx, dweight, dbias
  template <class T>
  std::vector<T> run() const {
    const std::int64_t weights = shape.inputs * shape.outputs;
    const std::vector<T> x = numbers<T>(shape.tokens * shape.inputs, 1);
    const std::vector<T> weight = numbers<T>(weights, 2);
    const std::vector<T> bias = numbers<T>(shape.outputs, 3);
    const std::vector<T> dy = numbers<T>(shape.tokens * shape.outputs, 4);
    std::vector<T> y = unwritten<T>(shape.tokens * shape.outputs);
    std::vector<T> dx = unwritten<T>(shape.tokens * shape.inputs);
    std::vector<T> dweight = unwritten<T>(weights);
    std::vector<T> dbias = unwritten<T>(shape.outputs);
    linear(shape, x.data(), weight.data(), bias.data(), y.data());
    linear_backward_input(shape, dy.data(), weight.data(), dx.data());
    linear_backward_weight(shape, x.data(), dy.data(), dweight.data());
    linear_backward_bias(shape, dy.data(), dbias.data());
    return joined({y, dx, dweight, dbias});
  }

  double weight_at(const std::vector<double>& weight, std::int64_t in, std::int64_t out) const {
    return weight[static_cast<std::size_t>(shape.transposed ? out * shape.inputs + in
                                                            : in * shape.outputs + out)];
  }

  std::vector<double> reference() const {
    const auto [tokens, inputs, outputs, transposed] = shape;
    const std::vector<double> x = numbers<double>(tokens * inputs, 1);
    const std::vector<double> weight = numbers<double>(inputs * outputs, 2);
    const std::vector<double> bias = numbers<double>(outputs, 3);
    const std::vector<double> dy = numbers<double>(tokens * outputs, 4);
    std::vector<double> y(static_cast<std::size_t>(tokens * outputs));
    std::vector<double> dx(x.size());
    std::vector<double> dweight(weight.size());
    std::vector<double> dbias(bias.size());
    for (std::int64_t n = 0; n < tokens; ++n) {
      for (std::int64_t o = 0; o < outputs; ++o) {
        const auto at = static_cast<std::size_t>(n * outputs + o);
        y[at] = bias[static_cast<std::size_t>(o)];
        dbias[static_cast<std::size_t>(o)] += dy[at];
        for (std::int64_t i = 0; i < inputs; ++i) {
          const auto from = static_cast<std::size_t>(n * inputs + i);
          y[at] += x[from] * weight_at(weight, i, o);
          dx[from] += dy[at] * weight_at(weight, i, o);
          dweight[static_cast<std::size_t>(transposed ? o * inputs + i : i * outputs + o)] +=
              x[from] * dy[at];
        }
      }
    }
    return joined({y, dx, dweight, dbias});
  }
};

class Linear : public ::testing::TestWithParam<bool> {
 protected:
  LinearCase linear_case{{300, 70, 210, GetParam()}};
};

TEST_P(Linear, AgreesWithSums) { expect_close(linear_case.run<double>(), linear_case.reference(), 1e-12); }

// The longest sum has 300 terms of at most 1: 300 roundings of at most 300.
TEST_P(Linear, WorkTypeAgrees) { expect_work_type_agrees(linear_case, 300 * 300 * unit); }

TEST_P(Linear, HasTheSameBitsForAnyThreadCount) { expect_same_bits(linear_case); }

INSTANTIATE_TEST_SUITE_P(Transposed, Linear, testing::Bool(), stowage::test::printed_name);

TEST(Linear, BiasMayBeAbsent) {
  const std::vector<float> x{1, 2};
  const std::vector<float> weight{3, 4};
  float y = -1;
  linear<float>({1, 2, 1}, x.data(), weight.data(), nullptr, &y);
  EXPECT_EQ(y, 11);
}

}  // namespace
}  // namespace stowage::cpu
