#include <algorithm>

#include "stowage/error.h"
#include "tests/kernels/cuda/cuda_kernel_case.h"

namespace stowage::test {
namespace {

struct Sizes {
  std::int64_t tokens, width, vocabulary, chunk;
};

class CudaLinearCrossEntropy : public CudaKernelTest {
 protected:
  // One chunk, whole chunks, a short last one, chunks that start unaligned, one token at a time.
  static constexpr Sizes all[] = {
      {6, 8, 33, 6}, {32, 16, 40, 8}, {13, 24, 65, 5}, {7, 3, 5, 2}, {3, 5, 4, 1}};

  // In bf16 logits are rounded to it, and so are the gradients of each, before they are multiplied again.
  static KernelCase head(const Sizes& sizes, std::int64_t transposed, bool bf16) {
    const std::vector<std::int64_t> shape = transposed != 0 ? std::vector{sizes.vocabulary, sizes.width}
                                                            : std::vector{sizes.width, sizes.vocabulary};
    std::vector<double> targets = whole_draws(sizes.tokens, 3, static_cast<int>(sizes.vocabulary));
    for (std::size_t i = 1; i < targets.size(); i += 4) targets[i] = -1;
    // Enough for the CPU's f64 too: logits, then an f32 sum of the weight's gradient.
    const std::int64_t workspace = 2 * sizes.chunk * sizes.vocabulary + 64 + sizes.width * sizes.vocabulary;
    return {"linear_cross_entropy",
            {{"transposed", transposed}, {"chunk", sizes.chunk}},
            {{Role::work, {sizes.tokens, sizes.width}, draws(sizes.tokens * sizes.width, 1)},
             {Role::work, shape, draws(sizes.width * sizes.vocabulary, 2)},
             {Role::i32, {sizes.tokens}, targets}},
            {{Role::f64, {}, {}, bf16 ? 0x1p-8 : 1e-6},
             {Role::work, {sizes.tokens, sizes.width}, {}, bf16 ? 0x1p-6 : 0},
             {Role::work, shape, {}, bf16 ? 0x1p-6 : 0},
             {Role::i32, {workspace}, {}}}};
  }
};

TEST_F(CudaLinearCrossEntropy, GivesLossAndBothGradients) {
  for (const Sizes& sizes : all) {
    for (const std::int64_t transposed : {0, 1}) {
      SCOPED_TRACE(testing::Message() << sizes.tokens << " tokens in chunks of " << sizes.chunk);
      expect_right_in(head(sizes, transposed, false), DataType::f32);
      expect_right_in(head(sizes, transposed, true), DataType::bf16);
      KernelCase scaled = head(sizes, transposed, true);
      scaled.step.loss_scale = 1024;
      expect_right_in(scaled, DataType::f32);
      expect_right_in(scaled, DataType::f16);
    }
  }
}

// Rows that shared memory has room for in 16 bits, and in neither type.
TEST_F(CudaLinearCrossEntropy, TakesAVocabularyOfAnyLength) {
  for (const std::int64_t vocabulary : {30000, 50500}) {
    const Sizes sizes{2, 3, vocabulary, 2};
    expect_right_in(head(sizes, 1, false), DataType::f32);
    expect_right_in(head(sizes, 1, true), DataType::bf16);
    KernelCase scaled = head(sizes, 1, true);
    scaled.step.loss_scale = 1024;
    expect_right_in(scaled, DataType::f16);
  }
}

// A chunk without a counted target adds nothing, the last one included.
TEST_F(CudaLinearCrossEntropy, IgnoresWholeChunks) {
  for (const std::size_t first : {0U, 8U}) {
    KernelCase of = head({16, 8, 24, 8}, 1, false);
    for (std::size_t i = first; i < first + 8; ++i) of.reads[2].values[i] = -1;
    expect_right_in(of, DataType::f32);
  }
}

// A bf16 sum over the chunks would stop growing: 512 + 1 = 512. Here each token adds the same.
TEST_F(CudaLinearCrossEntropy, SumsTheWeightsGradientInF32) {
  const Sizes sizes{1024, 8, 8, 1};
  KernelCase of = head(sizes, 0, true);
  for (double& value : of.reads[0].values) value = 1;
  for (double& value : of.reads[1].values) value = 0;
  for (double& value : of.reads[2].values) value = 3;
  expect_right_in(of, DataType::bf16);
}

TEST_F(CudaLinearCrossEntropy, RefusesAWorkspaceThatIsTooSmall) {
  KernelCase of = head({4, 8, 16, 2}, 0, false);
  of.writes[3].shape = {31};
  EXPECT_THROW(run_cuda(of, DataType::f32), InvalidInput);
}

// In bf16 the sums of both gradients lie behind the logits.
TEST_F(CudaLinearCrossEntropy, TakesABiasAndLeavesPaddingOut) {
  for (const Sizes& sizes : all) {
    for (const bool bf16 : {false, true}) {
      SCOPED_TRACE(testing::Message() << sizes.tokens << " tokens in chunks of " << sizes.chunk);
      KernelCase of = head(sizes, 1, bf16);
      const std::int64_t vocabulary = sizes.vocabulary - 1;
      of.attributes["vocabulary"] = vocabulary;
      for (double& target : of.reads[2].values)
        target = std::min(target, static_cast<double>(vocabulary - 1));
      of.reads.push_back({Role::work, {sizes.vocabulary}, draws(sizes.vocabulary, 4)});
      of.reads.back().values.back() = 32;  // padding's
      of.writes[3].shape[0] += sizes.vocabulary;
      of.writes.push_back({Role::work, {sizes.vocabulary}, {}, bf16 ? 0x1p-6 : 0});
      expect_right_in(of, bf16 ? DataType::bf16 : DataType::f32);
    }
  }
}

}  // namespace
}  // namespace stowage::test
