#include "kernels/cpu/embedding.h"

#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct FirstTokenCase {
  FirstTokenShape shape{5, 3, 7};

  // y, dx
  template <class T>
  std::vector<T> run() const {
    const std::vector<T> x = numbers<T>(shape.samples * shape.sequence * shape.width, 1);
    const std::vector<T> dy = numbers<T>(shape.samples * shape.width, 2);
    std::vector<T> y = unwritten<T>(shape.samples * shape.width);
    std::vector<T> dx = unwritten<T>(shape.samples * shape.sequence * shape.width);
    first_token(shape, x.data(), y.data());
    first_token_backward(shape, dy.data(), dx.data());
    return joined({y, dx});
  }

  std::vector<double> reference() const {
    const std::vector<double> x = numbers<double>(shape.samples * shape.sequence * shape.width, 1);
    const std::vector<double> dy = numbers<double>(shape.samples * shape.width, 2);
    std::vector<double> y(dy.size()), dx(x.size());
    for (std::int64_t i = 0; i < shape.samples * shape.width; ++i) {
      const std::int64_t at = i / shape.width * shape.sequence * shape.width + i % shape.width;
      y[static_cast<std::size_t>(i)] = x[static_cast<std::size_t>(at)];
      dx[static_cast<std::size_t>(at)] = dy[static_cast<std::size_t>(i)];
    }
    return joined({y, dx});
  }
};

TEST(FirstToken, TakesTheFirstRowOfEachSample) {
  for (const FirstTokenShape& shape : {FirstTokenShape{5, 3, 7}, {1, 1, 1}, {200, 2, 33}, {2, 100, 4}}) {
    expect_close(FirstTokenCase{shape}.run<double>(), FirstTokenCase{shape}.reference(), 0);
    expect_close(widened(FirstTokenCase{shape}.run<float>()), FirstTokenCase{shape}.reference(), 0);
  }
}

TEST(FirstToken, HasTheSameBitsForAnyThreadCount) { expect_same_bits(FirstTokenCase{{200, 9, 33}}); }

}  // namespace
}  // namespace stowage::cpu
