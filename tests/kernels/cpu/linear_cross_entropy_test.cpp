#include "kernels/cpu/linear_cross_entropy.h"

#include "kernels/cpu/cross_entropy.h"
#include "stowage/error.h"
#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct HeadCase {
  LinearShape shape{700, 64, 300, true};
  std::int64_t chunk = 128;
  std::int64_t vocabulary = 300;
  bool has_bias = false;

  // Every fifth is ignored.
  std::vector<std::int32_t> targets() const {
    std::mt19937 generator(7);
    std::vector<std::int32_t> result;
    for (std::int64_t i = 0; i < shape.tokens; ++i) {
      const auto drawn = static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocabulary));
      result.push_back(i % 5 == 0 ? -1 : drawn);
    }
    return result;
  }

  // loss, and the gradients times the targets that count (so that they are of size one)
  template <class T>
  std::vector<T> run() const {
    const std::vector<T> x = numbers<T>(shape.tokens * shape.inputs, 1);
    const std::vector<T> weight = numbers<T>(shape.inputs * shape.outputs, 2);
    const std::vector<std::int32_t> wanted = targets();
    std::vector<T> dx = unwritten<T>(shape.tokens * shape.inputs);
    std::vector<T> dweight = unwritten<T>(shape.inputs * shape.outputs);
    std::vector<T> logits = unwritten<T>(chunk * shape.outputs);
    const std::vector<T> bias = numbers<T>(shape.outputs, 3);
    std::vector<T> dbias = has_bias ? unwritten<T>(shape.outputs) : std::vector<T>{};
    double loss = -1;
    linear_cross_entropy<T>({shape, chunk, x.data(), weight.data(), wanted.data(), nullptr, 0, &loss,
                             dx.data(), dweight.data(), logits.data(), vocabulary,
                             has_bias ? bias.data() : nullptr, has_bias ? dbias.data() : nullptr});
    for (std::vector<T>* gradient : {&dx, &dweight, &dbias}) {
      for (T& value : *gradient) value *= static_cast<T>(560);
    }
    return joined({{static_cast<T>(loss)}, dx, dweight, dbias});
  }

  // By the parts, all tokens at once.
  std::vector<double> reference() const {
    const std::vector<double> x = numbers<double>(shape.tokens * shape.inputs, 1);
    const std::vector<double> weight = numbers<double>(shape.inputs * shape.outputs, 2);
    const std::vector<std::int32_t> wanted = targets();
    std::vector<double> logits(static_cast<std::size_t>(shape.tokens * shape.outputs));
    std::vector<double> dlogits(logits.size()), log_sum_exp(wanted.size()), dx(x.size()),
        dweight(weight.size());
    double loss = 0;
    const std::vector<double> bias = numbers<double>(shape.outputs, 3);
    std::vector<double> dbias(has_bias ? bias.size() : 0);
    const Logits counted{shape.tokens, vocabulary, shape.outputs};
    linear<double>(shape, x.data(), weight.data(), has_bias ? bias.data() : nullptr, logits.data());
    cross_entropy(counted, logits.data(), wanted.data(), &loss, log_sum_exp.data());
    cross_entropy_backward(counted, logits.data(), wanted.data(), log_sum_exp.data(), dlogits.data());
    linear_backward_input(shape, dlogits.data(), weight.data(), dx.data());
    linear_backward_weight(shape, x.data(), dlogits.data(), dweight.data());
    if (has_bias) linear_backward_bias(shape, dlogits.data(), dbias.data());
    for (std::vector<double>* gradient : {&dx, &dweight, &dbias}) {
      for (double& value : *gradient) value *= 560;
    }
    return joined({{loss}, dx, dweight, dbias});
  }
};

TEST(LinearCrossEntropy, IsTheSumOfItsChunks) {
  for (bool transposed : {false, true}) {
    for (std::int64_t chunk : {1, 128, 700, 5000}) {
      HeadCase head;
      head.shape.transposed = transposed;
      head.chunk = chunk;
      expect_close(head.run<double>(), head.reference(), 1e-12 * 560);
    }
  }
}

TEST(LinearCrossEntropy, TakesABiasAndLeavesPaddingOut) {
  for (std::int64_t chunk : {1, 128, 700}) {
    const HeadCase head{{700, 64, 300, true}, chunk, 261, true};
    expect_close(head.run<double>(), head.reference(), 1e-12 * 560);
  }
  expect_same_bits(HeadCase{{700, 64, 300, true}, 128, 261, true});
}

// Sums of up to 700 products of size one.
TEST(LinearCrossEntropy, HasF32NearF64) { expect_work_type_agrees(HeadCase{}, 700 * 4 * unit); }

TEST(LinearCrossEntropy, HasTheSameBitsForAnyThreadCount) { expect_same_bits(HeadCase{}); }

TEST(LinearCrossEntropy, RefusesATargetBeyondTheVocabulary) {
  const std::vector<std::int32_t> targets = {0, 3};
  EXPECT_THROW(counted_targets(2, 3, targets.data()), InvalidInput);
  EXPECT_EQ(counted_targets(2, 4, targets.data()), 2);
}

TEST(LinearCrossEntropy, IsZeroWhereNoTargetCounts) {
  const std::vector<std::int32_t> targets = {-1, -100};
  const std::vector<float> x = {1, 2}, weight = {3, 4};
  std::vector<float> dx = {9, 9}, dweight = {9, 9}, logits(4);
  double loss = 9;
  linear_cross_entropy<float>({{2, 1, 2, true},
                               2,
                               x.data(),
                               weight.data(),
                               targets.data(),
                               nullptr,
                               0,
                               &loss,
                               dx.data(),
                               dweight.data(),
                               logits.data()});
  EXPECT_EQ(loss, 0);
  EXPECT_EQ(dx, (std::vector<float>{0, 0}));
  EXPECT_EQ(dweight, (std::vector<float>{0, 0}));
}

}  // namespace
}  // namespace stowage::cpu
