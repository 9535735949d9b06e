#include <ostream>

#include "kernels/cpu/layer_norm.h"
#include "tests/kernels/kernel_check.h"
#include "tests/support/printed_name.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct RmsNormCase {
  std::int64_t rows, width;
  bool in_place = false;
  double epsilon = 0.01;

  template <class T>
  struct Inputs {
    std::vector<T> x, gain, dy, before;
  };
  template <class T>
  Inputs<T> inputs() const {
    return {numbers<T>(rows * width, 1, 3), numbers<T>(width, 2), numbers<T>(rows * width, 4),
            numbers<T>(rows * width, 7)};
  }

  template <class T>
  std::vector<T> gradient(const Inputs<T>& in, const std::vector<T>& rstd, const T* before) const {
    std::vector<T> dx = in_place ? in.dy : unwritten<T>(rows * width);
    rms_norm_backward(rows, width, in.x.data(), in.gain.data(), rstd.data(),
                      in_place ? dx.data() : in.dy.data(), before, dx.data());
    return dx;
  }

  // y, rstd, dx, dx with another gradient
  template <class T>
  std::vector<T> rowwise() const {
    const Inputs<T> in = inputs<T>();
    std::vector<T> y = unwritten<T>(rows * width);
    std::vector<T> rstd = unwritten<T>(rows);
    rms_norm(rows, width, epsilon, in.x.data(), in.gain.data(), y.data(), rstd.data());
    return joined({y, rstd, gradient<T>(in, rstd, nullptr), gradient<T>(in, rstd, in.before.data())});
  }

  // dgain
  template <class T>
  std::vector<T> parameters() const {
    const Inputs<T> in = inputs<T>();
    const std::vector<T> rstd = numbers<T>(rows, 6);
    std::vector<T> dgain = unwritten<T>(width);
    rms_norm_backward_parameters(rows, width, in.x.data(), rstd.data(), in.dy.data(), dgain.data());
    return dgain;
  }

  template <class T>
  std::vector<T> run() const {
    return joined({rowwise<T>(), parameters<T>()});
  }

  // dx by the chain rule, through each x and through rstd.
  std::vector<double> rowwise_reference() const {
    const Inputs<double> in = inputs<double>();
    const auto w = static_cast<std::size_t>(width);
    std::vector<double> y, rstds, dx, whole;
    for (std::size_t row = 0; row < in.x.size(); row += w) {
      double squares = 0;
      for (std::size_t i = 0; i < w; ++i) squares += std::pow(in.x[row + i], 2) / static_cast<double>(w);
      const double rstd = 1 / std::sqrt(squares + epsilon);
      for (std::size_t i = 0; i < w; ++i) y.push_back(in.x[row + i] * rstd * in.gain[i]);
      rstds.push_back(rstd);
      double product = 0;  // the gradient of rstd
      for (std::size_t i = 0; i < w; ++i) product += in.dy[row + i] * in.gain[i] * in.x[row + i];
      for (std::size_t i = 0; i < w; ++i) {
        const double drstd = -std::pow(rstd, 3) * in.x[row + i] / static_cast<double>(w);
        dx.push_back(in.dy[row + i] * in.gain[i] * rstd + product * drstd);
        whole.push_back(dx.back() + in.before[row + i]);
      }
    }
    return joined({y, rstds, dx, whole});
  }

  std::vector<double> parameters_reference() const {
    const Inputs<double> in = inputs<double>();
    const std::vector<double> rstd = numbers<double>(rows, 6);
    const auto w = static_cast<std::size_t>(width);
    std::vector<double> dgain(w);
    for (std::size_t at = 0; at < in.x.size(); ++at) dgain[at % w] += in.dy[at] * in.x[at] * rstd[at / w];
    return dgain;
  }
};

void PrintTo(const RmsNormCase& norm, std::ostream* out) {
  *out << norm.rows << 'x' << norm.width << (norm.in_place ? " in place" : "");
}

class RmsNorm : public ::testing::TestWithParam<RmsNormCase> {};

TEST_P(RmsNorm, AgreesWithTheDefinition) {
  expect_close(GetParam().rowwise<double>(), GetParam().rowwise_reference(), 1e-12);
  expect_close(GetParam().parameters<double>(), GetParam().parameters_reference(), 1e-11);
}

// A row's sum has at most `width` terms of size 9; the vector lanes that share it make its error far smaller.
TEST_P(RmsNorm, WorkTypeAgrees) {
  expect_close(widened(GetParam().rowwise<float>()), GetParam().rowwise<double>(), 64 * unit);
}

// A term is at most 3; it passes through 64 additions of its run and one for each later run.
TEST_P(RmsNorm, ParameterGradientsOfTheWorkTypeAgree) {
  const auto rows = static_cast<double>(GetParam().rows);
  expect_close(widened(GetParam().parameters<float>()), GetParam().parameters<double>(),
               (64 + rows / 64 + 3) * 3 * rows * unit);
}

TEST_P(RmsNorm, HasTheSameBitsForAnyThreadCount) { expect_same_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Shapes, RmsNorm,
                         ::testing::Values(RmsNormCase{3, 5}, RmsNormCase{200, 64}, RmsNormCase{301, 131},
                                           RmsNormCase{301, 131, true}, RmsNormCase{1, 3000}),
                         stowage::test::printed_name);

// epsilon alone keeps the row from a division by 0.
TEST(RmsNormOfZeros, IsZero) {
  const std::vector<float> x(7), gain(7, 2.0F);
  std::vector<float> y = unwritten<float>(7), rstd = unwritten<float>(1);
  rms_norm(1, 7, 0.25, x.data(), gain.data(), y.data(), rstd.data());
  EXPECT_EQ(y, std::vector<float>(7));
  EXPECT_EQ(rstd[0], 2.0F);
}

}  // namespace
}  // namespace stowage::cpu
