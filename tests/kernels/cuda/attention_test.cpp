#include "tests/kernels/cuda/cuda_kernel_case.h"

#include <cstdlib>
#include <string_view>

#include "stowage/error.h"

namespace stowage::test {
namespace {

struct Sizes {
  std::int64_t samples, heads, sequence, head_width;
  bool causal = true;
  double dropout = 0;

  std::int64_t tokens() const { return samples * sequence; }
  std::int64_t width() const { return heads * head_width; }
};

class CudaAttention : public CudaKernelTest {
 protected:
  // One token; sequences shorter than a tile, whole tiles and not; heads that fill 64, 128 and 256 columns
  // and that do not.
  static std::vector<Sizes> all() {
    std::vector<Sizes> sizes;
    for (const bool causal : {true, false}) {
      for (const double dropout : {0.0, 0.25}) {
        sizes.push_back({1, 1, 1, 4, causal, dropout});
        sizes.push_back({2, 3, 19, 5, causal, dropout});
        sizes.push_back({1, 2, 128, 64, causal, dropout});
        sizes.push_back({1, 1, 150, 32, causal, dropout});
        sizes.push_back({1, 1, 70, 80, causal, dropout});
        sizes.push_back({1, 1, 37, 192, causal, dropout});
      }
    }
    return sizes;
  }

  static Attributes attributes(const Sizes& sizes) {
    return {{"heads", sizes.heads},
            {"sequence", sizes.sequence},
            {"causal", std::int64_t{sizes.causal}},
            {"dropout", sizes.dropout},
            {"key", std::int64_t{21}}};
  }
  static TestOperand qkv(const Sizes& sizes) {
    return {Role::work, {sizes.tokens(), 3 * sizes.width()}, draws(sizes.tokens() * 3 * sizes.width(), 1, 2)};
  }
  // cuDNN rounds probabilities and their gradients to bf16 before it multiplies with them; our own kernel
  // does not, and is judged alone where STOWAGE_CUDNN=off.
  static double fused(double tolerance) {
    const char* cudnn = std::getenv("STOWAGE_CUDNN");
    return cudnn != nullptr && std::string_view(cudnn) == "off" ? 0 : tolerance;
  }
  void expect_attention(KernelCase of, double bf16_tolerance) {
    expect_right_in(of, DataType::f32);
    of.writes[0].tolerance = fused(bf16_tolerance);
    expect_right_in(of, DataType::bf16);
  }

  static KernelCase forward(const Sizes& sizes) {
    return {"attention",
            attributes(sizes),
            {qkv(sizes)},
            {{Role::work, {sizes.tokens(), sizes.width()}, {}},
             {Role::sums, {sizes.samples, sizes.heads, sizes.sequence}, {}}}};
  }
  // What forward leaves is rounded as the work type rounds it.
  static KernelCase backward(const Sizes& sizes) {
    const KernelCase of = forward(sizes);
    const std::vector<Output> left = run_cpu(of, DataType::f64, DataType::bf16);
    return {"attention_backward",
            attributes(sizes),
            {qkv(sizes),
             {Role::work, of.writes[0].shape, widened(left[0], DataType::f64)},
             {Role::sums, of.writes[1].shape, widened(left[1], DataType::f64)},
             {Role::work, of.writes[0].shape, draws(sizes.tokens() * sizes.width(), 2)}},
            {{Role::work, {sizes.tokens(), 3 * sizes.width()}, {}}}};
  }
  static std::string name(const Sizes& sizes) {
    return std::to_string(sizes.samples) + " x " + std::to_string(sizes.heads) + " x " +
           std::to_string(sizes.sequence) + " x " + std::to_string(sizes.head_width) +
           (sizes.causal ? ", causal" : "") + ", dropout " + std::to_string(sizes.dropout);
  }
};

TEST_F(CudaAttention, GivesOutputAndLogSumExp) {
  for (const Sizes& sizes : all()) {
    SCOPED_TRACE(name(sizes));
    expect_attention(forward(sizes), 0x1p-7);
  }
}

TEST_F(CudaAttention, GivesTheGradient) {
  for (const Sizes& sizes : all()) {
    SCOPED_TRACE(name(sizes));
    expect_attention(backward(sizes), 0x1p-6);
  }
}

TEST_F(CudaAttention, TakesTheWorkspaceOfAFusedKernel) {
  KernelCase of = backward({1, 2, 64, 16});
  of.writes.push_back({Role::i32, {300000}, {}});
  of.writes[0].tolerance = fused(0x1p-6);
  expect_right_in(of, DataType::bf16);
}

TEST_F(CudaAttention, LargeScoresDoNotOverflow) {
  KernelCase of = forward({1, 1, 40, 8, false});
  for (double& value : of.reads[0].values) value *= 64;
  expect_attention(of, 0x1p-7);
}

TEST_F(CudaAttention, RefusesHeadsThatAreTooWide) {
  const Sizes sizes{1, 1, 2, 260};
  EXPECT_THROW(run_cuda(forward(sizes), DataType::f32), InvalidInput);
}

// Positions that are padding: the first tile's, holes, the end; not all of any sample. cuDNN is not asked
// then.
TEST_F(CudaAttention, LeavesPaddingOut) {
  for (const Sizes& sizes : {Sizes{2, 3, 19, 5, false}, Sizes{1, 2, 150, 64, false, 0.25},
                             Sizes{2, 1, 70, 80, true}, Sizes{1, 1, 37, 192, false}}) {
    SCOPED_TRACE(name(sizes));
    TestOperand seen{
        Role::i32, {sizes.tokens()}, std::vector<double>(static_cast<std::size_t>(sizes.tokens()), 1)};
    for (std::int64_t i = 0; i < sizes.tokens(); ++i) {
      const std::int64_t position = i % sizes.sequence;
      const bool hidden =
          sizes.causal ? position == 3 || position == 40 : position < sizes.sequence / 2 || i % 5 == 0;
      if (hidden) seen.values[static_cast<std::size_t>(i)] = 0;
    }
    KernelCase of = forward(sizes);
    of.reads.push_back(seen);
    expect_right(of);
    const std::vector<Output> left = run_cpu(of, DataType::f64, DataType::bf16);
    KernelCase back = backward(sizes);
    back.reads[1].values = widened(left[0], DataType::f64);
    back.reads[2].values = widened(left[1], DataType::f64);
    back.reads.push_back(seen);
    expect_right(back);
  }
}

// Of a batch whose second half it takes.
TEST_F(CudaAttention, TakesItsPartOfTheBatchsPadding) {
  const Sizes sizes{1, 2, 20, 8, false};
  KernelCase of = forward(sizes);
  of.attributes["first_token"] = std::int64_t{20};
  TestOperand seen{Role::i32, {40}, std::vector<double>(40, 0)};
  for (std::size_t i = 22; i < 30; ++i) seen.values[i] = 1;
  of.reads.push_back(seen);
  expect_right(of);
}

}  // namespace
}  // namespace stowage::test
