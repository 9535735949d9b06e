#include <array>

#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

class CudaFirstToken : public CudaKernelTest {
 protected:
  static KernelCase forward(std::int64_t samples, std::int64_t sequence, std::int64_t width) {
    const std::int64_t tokens = samples * sequence;
    return {"first_token",
            {{"sequence", sequence}},
            {{Role::work, {tokens, width}, draws(tokens * width, 1)}},
            {{Role::work, {samples, width}, {}}}};
  }
  static KernelCase backward(std::int64_t samples, std::int64_t sequence, std::int64_t width) {
    return {"first_token_backward",
            {{"sequence", sequence}},
            {{Role::work, {samples, width}, draws(samples * width, 2)}},
            {{Role::work, {samples * sequence, width}, {}}}};
  }
};

TEST_F(CudaFirstToken, TakesTheFirstRowOfEachSampleAndItsGradient) {
  for (const auto& [samples, sequence, width] :
       {std::array<std::int64_t, 3>{1, 1, 1}, {3, 5, 7}, {40, 3, 64}, {2, 9, 300}}) {
    expect_right(forward(samples, sequence, width));
    expect_right(backward(samples, sequence, width));
  }
}

}  // namespace
}  // namespace stowage::test
