#include <algorithm>
#include <cmath>

#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

struct Sizes {
  std::int64_t rows, vocabulary;
};

class CudaCrossEntropy : public CudaKernelTest {
 protected:
  static constexpr Sizes all[] = {{1, 2}, {5, 65}, {9, 256}, {4, 5003}, {700, 11}};

  static TestOperand logits(const Sizes& sizes) {
    return {Role::work, {sizes.rows, sizes.vocabulary}, draws(sizes.rows * sizes.vocabulary, 1, 16)};
  }
  // Every third one is ignored, but not in a batch of one row.
  static TestOperand targets(const Sizes& sizes) {
    std::vector<double> values = whole_draws(sizes.rows, 2, static_cast<int>(sizes.vocabulary));
    for (std::size_t i = 2; i < values.size(); i += 3) values[i] = -1;
    return {Role::i32, {sizes.rows}, values};
  }
  static KernelCase forward(const Sizes& sizes) {
    return {"cross_entropy",
            {},
            {logits(sizes), targets(sizes)},
            {{Role::f64, {}, {}, 1e-6}, {Role::sums, {sizes.rows}, {}}}};
  }
  static KernelCase backward(const Sizes& sizes) {
    const std::vector<double> log_sum_exp =
        widened(run_cpu(forward(sizes), DataType::f64, DataType::bf16)[1], DataType::f64);
    return {"cross_entropy_backward",
            {},
            {logits(sizes), targets(sizes), {Role::sums, {sizes.rows}, log_sum_exp}},
            {{Role::work, {sizes.rows, sizes.vocabulary}, {}}}};
  }
};

TEST_F(CudaCrossEntropy, GivesTheMeanLossAndLogSumExp) {
  for (const Sizes& sizes : all) expect_right(forward(sizes));
}

TEST_F(CudaCrossEntropy, GivesTheGradient) {
  for (const Sizes& sizes : all) expect_right(backward(sizes));
}

TEST_F(CudaCrossEntropy, GivesTheGradientInPlace) {
  for (const Sizes& sizes : all) {
    KernelCase of = backward(sizes);
    of.in_place = {{0, 0}};
    expect_right(of);
  }
}

TEST_F(CudaCrossEntropy, WithoutTargetsLossAndGradientAreZero) {
  const Sizes sizes{3, 7};
  KernelCase loss = forward(sizes);
  KernelCase gradient = backward(sizes);
  loss.reads[1].values = gradient.reads[1].values = {-1, -5, -100};
  EXPECT_EQ(widened(run_cuda(loss, DataType::f32)[0], DataType::f64), std::vector<double>{0});
  EXPECT_EQ(widened(run_cuda(gradient, DataType::bf16)[0], DataType::bf16), std::vector<double>(21, 0));
}

// Logits far apart, and large ones: the largest is taken off first.
TEST_F(CudaCrossEntropy, LargeLogitsDoNotOverflow) {
  KernelCase of = forward({2, 3});
  of.reads[0].values = {1000, 0, -1000, -512, -512, -512};
  of.reads[1].values = {1, 2};
  expect_right(of);
}

TEST_F(CudaCrossEntropy, ATargetBeyondTheVocabularyShows) {
  KernelCase of = forward({2, 3});
  of.reads[1].values = {1, 3};
  EXPECT_TRUE(std::isnan(widened(run_cuda(of, DataType::f32)[0], DataType::f64)[0]));
}

// The CPU's kernels leave padding out as well; here it would rule every sum.
TEST_F(CudaCrossEntropy, LeavesPaddingOut) {
  for (const Sizes& sizes : {Sizes{5, 65}, Sizes{9, 256}, Sizes{4, 5003}}) {
    const std::int64_t vocabulary = sizes.vocabulary - 9;
    KernelCase loss = forward(sizes);
    for (std::size_t i = 0; i < loss.reads[0].values.size(); ++i)
      if (static_cast<std::int64_t>(i) % sizes.vocabulary >= vocabulary) loss.reads[0].values[i] = 64;
    loss.attributes["vocabulary"] = vocabulary;
    for (double& target : loss.reads[1].values)
      target = std::min(target, static_cast<double>(vocabulary - 1));
    expect_right(loss);
    const std::vector<double> log_sum_exp =
        widened(run_cpu(loss, DataType::f64, DataType::bf16)[1], DataType::f64);
    expect_right({"cross_entropy_backward",
                  loss.attributes,
                  {loss.reads[0], loss.reads[1], {Role::sums, {sizes.rows}, log_sum_exp}},
                  {{Role::work, {sizes.rows, sizes.vocabulary}, {}}}});
  }
}

}  // namespace
}  // namespace stowage::test
