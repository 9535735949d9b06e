#include "kernels/cpu/layer_norm.h"

#include <ostream>

#include "tests/kernels/kernel_check.h"
#include "tests/support/printed_name.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

constexpr double epsilon = 1e-5;

struct LayerNormCase {
  std::int64_t rows, width;
  bool in_place = false;

  template <class T>
  struct Inputs {
    std::vector<T> x, gain, bias, dy;
  };
  template <class T>
  Inputs<T> inputs() const {
    return {numbers<T>(rows * width, 1, 3), numbers<T>(width, 2), numbers<T>(width, 3),
            numbers<T>(rows * width, 4)};
  }

  // y, mean, rstd, dx, dx with another gradient
  template <class T>
  std::vector<T> rowwise() const {
    const Inputs<T> in = inputs<T>();
    std::vector<T> y = unwritten<T>(rows * width);
    std::vector<T> mean = unwritten<T>(rows);
    std::vector<T> rstd = unwritten<T>(rows);
    layer_norm(rows, width, epsilon, in.x.data(), in.gain.data(), in.bias.data(), y.data(), mean.data(),
               rstd.data());
    std::vector<T> dx = in_place ? in.dy : unwritten<T>(rows * width);
    layer_norm_backward(rows, width, in.x.data(), in.gain.data(), mean.data(), rstd.data(),
                        in_place ? dx.data() : in.dy.data(), static_cast<const T*>(nullptr), dx.data());
    const std::vector<T> before = numbers<T>(rows * width, 7);
    std::vector<T> sum = in_place ? in.dy : unwritten<T>(rows * width);
    layer_norm_backward(rows, width, in.x.data(), in.gain.data(), mean.data(), rstd.data(),
                        in_place ? sum.data() : in.dy.data(), before.data(), sum.data());
    return joined({y, mean, rstd, dx, sum});
  }

  // dgain, dbias
  template <class T>
  std::vector<T> parameters() const {
    const Inputs<T> in = inputs<T>();
    const std::vector<T> mean = numbers<T>(rows, 5);
    const std::vector<T> rstd = numbers<T>(rows, 6);
    std::vector<T> dgain = unwritten<T>(width);
    std::vector<T> dbias = unwritten<T>(width);
    layer_norm_backward_parameters(rows, width, in.x.data(), mean.data(), rstd.data(), in.dy.data(),
                                   dgain.data(), dbias.data());
    return joined({dgain, dbias});
  }

  template <class T>
  std::vector<T> run() const {
    return joined({rowwise<T>(), parameters<T>()});
  }

  // dx from the derivative of each y by each x.
  std::vector<double> rowwise_reference() const {
    const Inputs<double> in = inputs<double>();
    const auto w = static_cast<std::size_t>(width);
    std::vector<double> y, means, rstds, dx;
    for (std::size_t row = 0; row < in.x.size(); row += w) {
      double mean = 0;
      double variance = 0;
      for (std::size_t i = 0; i < w; ++i) mean += in.x[row + i] / static_cast<double>(w);
      for (std::size_t i = 0; i < w; ++i)
        variance += std::pow(in.x[row + i] - mean, 2) / static_cast<double>(w);
      const double rstd = 1 / std::sqrt(variance + epsilon);
      auto n = [&](std::size_t i) { return (in.x[row + i] - mean) * rstd; };
      for (std::size_t i = 0; i < w; ++i) y.push_back(n(i) * in.gain[i] + in.bias[i]);
      means.push_back(mean);
      rstds.push_back(rstd);
      for (std::size_t j = 0; j < w; ++j) {
        double sum = 0;
        for (std::size_t i = 0; i < w; ++i) {
          const double dn = rstd * ((i == j ? 1.0 : 0.0) - (1 + n(i) * n(j)) / static_cast<double>(w));
          sum += in.dy[row + i] * in.gain[i] * dn;
        }
        dx.push_back(sum);
      }
    }
    const std::vector<double> before = numbers<double>(rows * width, 7);
    std::vector<double> whole;
    for (std::size_t i = 0; i < dx.size(); ++i) whole.push_back(dx[i] + before[i]);
    return joined({y, means, rstds, dx, whole});
  }

  std::vector<double> parameters_reference() const {
    const Inputs<double> in = inputs<double>();
    const std::vector<double> mean = numbers<double>(rows, 5);
    const std::vector<double> rstd = numbers<double>(rows, 6);
    const auto w = static_cast<std::size_t>(width);
    std::vector<double> dgain(w);
    std::vector<double> dbias(w);
    for (std::size_t at = 0; at < in.x.size(); ++at) {
      dgain[at % w] += in.dy[at] * (in.x[at] - mean[at / w]) * rstd[at / w];
      dbias[at % w] += in.dy[at];
    }
    return joined({dgain, dbias});
  }
};

void PrintTo(const LayerNormCase& norm, std::ostream* out) {
  *out << norm.rows << 'x' << norm.width << (norm.in_place ? " in place" : "");
}

class LayerNorm : public ::testing::TestWithParam<LayerNormCase> {};

TEST_P(LayerNorm, AgreesWithTheDefinition) {
  expect_close(GetParam().rowwise<double>(), GetParam().rowwise_reference(), 1e-12);
  expect_close(GetParam().parameters<double>(), GetParam().parameters_reference(), 1e-11);
}

// Row sums add at most `width` terms of size 3 and their error enters x - mean (up to 6, times rstd
// of about 0.6); the vector lanes that share a sum make the true error far smaller than width.
TEST_P(LayerNorm, WorkTypeAgrees) {
  const auto found = GetParam().rowwise<float>();
  expect_close(widened(found), GetParam().rowwise<double>(), 64 * unit);
}

// A term is at most 4; it passes through 64 additions of its run and one for each later run.
TEST_P(LayerNorm, ParameterGradientsOfTheWorkTypeAgree) {
  const auto rows = static_cast<double>(GetParam().rows);
  expect_close(widened(GetParam().parameters<float>()), GetParam().parameters<double>(),
               (64 + rows / 64 + 3) * 4 * rows * unit);
}

TEST_P(LayerNorm, HasTheSameBitsForAnyThreadCount) { expect_same_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Shapes, LayerNorm,
                         ::testing::Values(LayerNormCase{3, 5}, LayerNormCase{200, 64},
                                           LayerNormCase{301, 131}, LayerNormCase{301, 131, true},
                                           LayerNormCase{1, 3000}),
                         stowage::test::printed_name);

}  // namespace
}  // namespace stowage::cpu
