#include "tests/kernels/cuda/cuda_kernel_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string_view>

#include "stowage/error.h"

namespace stowage::test {
namespace {

struct Sizes {
  std::int64_t samples, heads, sequence, head_width;
  bool causal = true;
  double dropout = 0;
  std::int64_t key_heads = 0;  // 0: as many as heads
  std::int64_t window = 0;
  std::vector<double> begins = {};  // of the tokens' documents, or empty

  std::int64_t tokens() const { return samples * sequence; }
  std::int64_t width() const { return heads * head_width; }
  std::int64_t group() const { return key_heads > 0 ? heads / key_heads : 1; }
  std::int64_t packed_width() const { return width() + 2 * width() / group(); }
};

// How far results in bf16 may be off the exact ones because a probability, and the gradient of a score, is
// rounded to bf16 before it is multiplied with, as everywhere in flash attention: by 2^-8 of itself. 1e-5
// stands for all sums in f32, as where results are f32. Dropout may keep every element.
class RoundingErrors {
 public:
  // `reads`: qkv; of backward out, log_sum_exp and dout too. `seen`: of the tokens; null: all.
  RoundingErrors(const Sizes& sizes, const std::vector<TestOperand>& reads, const double* seen)
      : sizes_(sizes), reads_(reads), seen_(seen) {}

  // Of each element of out.
  std::vector<double> of_out() const {
    std::vector<double> errors(static_cast<std::size_t>(sizes_.tokens() * sizes_.width()));
    for_each_pair([&](const Pair& pair, double weight) {
      add(weight, of_qkv(2, pair.key, pair.head), errors.data() + wide(pair.query, pair.head));
    });
    return errors;
  }

  std::vector<double> of_dqkv() const {
    std::vector<double> errors(static_cast<std::size_t>(sizes_.tokens() * sizes_.packed_width()));
    for_each_pair([&](const Pair& pair, double weight) {
      const double* dout = reads_[3].values.data() + wide(pair.query, pair.head);
      const double dp = dot(dout, of_qkv(2, pair.key, pair.head));
      const double delta = dot(dout, reads_[1].values.data() + wide(pair.query, pair.head));
      const double gradient = weight * (std::abs(dp) + std::abs(delta)) * scale();
      add(gradient, of_qkv(1, pair.key, pair.head), errors.data() + packed(0, pair.query, pair.head));
      add(gradient, of_qkv(0, pair.query, pair.head), errors.data() + packed(1, pair.key, pair.head));
      add(weight, dout, errors.data() + packed(2, pair.key, pair.head));
    });
    return errors;
  }

 private:
  struct Pair {
    std::int64_t query, key, head;  // tokens, and one of a token's heads
  };

  std::int64_t wide(std::int64_t token, std::int64_t head) const {
    return token * sizes_.width() + head * sizes_.head_width;
  }
  // Part 0: the query head's queries; 1 and 2: the keys and values that it reads.
  std::int64_t packed(std::int64_t part, std::int64_t token, std::int64_t head) const {
    const std::int64_t key_heads = sizes_.heads / sizes_.group();
    const std::int64_t place =
        part == 0 ? head : sizes_.heads + (part - 1) * key_heads + head / sizes_.group();
    return token * sizes_.packed_width() + place * sizes_.head_width;
  }
  const double* of_qkv(std::int64_t part, std::int64_t token, std::int64_t head) const {
    return reads_[0].values.data() + packed(part, token, head);
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(sizes_.head_width)); }
  double dot(const double* a, const double* b) const {
    return std::inner_product(a, a + sizes_.head_width, b, 0.0);
  }
  void add(double factor, const double* row, double* errors) const {
    for (std::int64_t i = 0; i < sizes_.head_width; ++i) errors[i] += factor * std::abs(row[i]);
  }

  // `function(pair, error of the pair's probability after dropout)`.
  template <class Function>
  void for_each_pair(const Function& function) const {
    for (std::int64_t query = 0; query < sizes_.tokens(); ++query) {
      const std::int64_t first = query / sizes_.sequence * sizes_.sequence;
      const std::int64_t keys = sizes_.causal ? query + 1 - first : sizes_.sequence;
      for (std::int64_t head = 0; head < sizes_.heads; ++head) {
        const std::vector<double> probabilities = softmax(query, first, keys, head);
        for (std::int64_t i = 0; i < keys; ++i) {
          const double weight = probabilities[static_cast<std::size_t>(i)] / (1 - sizes_.dropout);
          function(Pair{query, first + i, head}, (0x1p-8 + 1e-5) * weight);
        }
      }
    }
  }
  std::vector<double> softmax(std::int64_t query, std::int64_t first, std::int64_t keys,
                              std::int64_t head) const {
    std::vector<double> row;
    for (std::int64_t key = first; key < first + keys; ++key) {
      const bool hidden = (seen_ != nullptr && seen_[key] == 0) ||
                          (sizes_.window > 0 && query - key >= sizes_.window) ||
                          (!sizes_.begins.empty() &&
                           static_cast<double>(key - first) < sizes_.begins[static_cast<std::size_t>(query)]);
      row.push_back(hidden ? -std::numeric_limits<double>::infinity()
                           : scale() * dot(of_qkv(0, query, head), of_qkv(1, key, head)));
    }
    const double largest = *std::max_element(row.begin(), row.end());
    for (double& value : row) value = std::exp(value - largest);
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    for (double& value : row) value /= sum;
    return row;
  }

  const Sizes& sizes_;
  const std::vector<TestOperand>& reads_;
  const double* seen_;
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
    Attributes all{{"heads", sizes.heads},
                   {"sequence", sizes.sequence},
                   {"causal", std::int64_t{sizes.causal}},
                   {"dropout", sizes.dropout},
                   {"key", std::int64_t{21}},
                   {"first_element", std::int64_t{sizes.causal ? 0 : 6845}}};  // as in a second micro-batch
    if (sizes.key_heads > 0) all["key_heads"] = sizes.key_heads;
    if (sizes.window > 0) all["window"] = sizes.window;
    if (!sizes.begins.empty()) all["documents"] = std::int64_t{1};
    return all;
  }
  static TestOperand qkv(const Sizes& sizes) {
    const std::int64_t width = sizes.packed_width();
    return {Role::work, {sizes.tokens(), width}, draws(sizes.tokens() * width, 1, 2)};
  }
  static void add_documents(const Sizes& sizes, KernelCase& of) {
    if (!sizes.begins.empty()) of.reads.push_back({Role::i32, {sizes.tokens()}, sizes.begins});
  }
  // cuDNN may round more than our own kernel does, and is judged by the largest element where it may run.
  static double fused(double tolerance) {
    const char* method = std::getenv("STOWAGE_ATTENTION");
    return method != nullptr && std::string_view(method) == "own" ? 0 : tolerance;
  }
  void expect_attention(const Sizes& sizes, KernelCase of, const double* seen = nullptr) {
    expect_right_in(of, DataType::f32);
    const bool is_forward = of.kernel == "attention";
    const RoundingErrors errors(sizes, of.reads, seen);
    of.writes[0].slack = is_forward ? errors.of_out() : errors.of_dqkv();
    of.writes[0].tolerance = fused(is_forward ? 0x1p-7 : 0x1p-6);
    expect_right_in(of, DataType::bf16);
  }

  static KernelCase forward(const Sizes& sizes) {
    KernelCase of{"attention",
                  attributes(sizes),
                  {qkv(sizes)},
                  {{Role::work, {sizes.tokens(), sizes.width()}, {}},
                   {Role::sums, {sizes.samples, sizes.heads, sizes.sequence}, {}}}};
    add_documents(sizes, of);
    return of;
  }
  // What forward leaves is rounded as the work type rounds it.
  static KernelCase backward(const Sizes& sizes) {
    const KernelCase of = forward(sizes);
    const std::vector<Output> left = run_cpu(of, DataType::f64, DataType::bf16);
    KernelCase back{"attention_backward",
                    attributes(sizes),
                    {qkv(sizes),
                     {Role::work, of.writes[0].shape, widened(left[0], DataType::f64)},
                     {Role::sums, of.writes[1].shape, widened(left[1], DataType::f64)},
                     {Role::work, of.writes[0].shape, draws(sizes.tokens() * sizes.width(), 2)}},
                    {{Role::work, {sizes.tokens(), sizes.packed_width()}, {}}}};
    add_documents(sizes, back);
    return back;
  }
  static std::string name(const Sizes& sizes) {
    return std::to_string(sizes.samples) + " x " + std::to_string(sizes.heads) + " x " +
           std::to_string(sizes.sequence) + " x " + std::to_string(sizes.head_width) +
           (sizes.causal ? ", causal" : "") + ", dropout " + std::to_string(sizes.dropout) + ", " +
           std::to_string(sizes.key_heads) + " key heads, window " + std::to_string(sizes.window) +
           (sizes.begins.empty() ? "" : ", documents");
  }
};

TEST_F(CudaAttention, GivesOutputAndLogSumExp) {
  for (const Sizes& sizes : all()) {
    SCOPED_TRACE(name(sizes));
    expect_attention(sizes, forward(sizes));
  }
}

TEST_F(CudaAttention, GivesTheGradient) {
  for (const Sizes& sizes : all()) {
    SCOPED_TRACE(name(sizes));
    expect_attention(sizes, backward(sizes));
  }
}

// Begins of two samples: one of documents of a token, across tiles, and to the end; one of a single document.
std::vector<double> two_samples_documents(std::int64_t sequence) {
  std::vector<double> begins(static_cast<std::size_t>(2 * sequence), 0);
  for (const std::int64_t begin : {std::int64_t{1}, std::int64_t{2}, sequence * 2 / 3})
    std::fill(begins.begin() + begin, begins.begin() + sequence, static_cast<double>(begin));
  return begins;
}

// Tiles that are skipped, in front and behind, at each of the kernels' three widths.
TEST_F(CudaAttention, ComputesGroupsWindowsAndDocuments) {
  for (const Sizes& sizes : {Sizes{2, 4, 19, 5, false, 0.25, 2}, Sizes{1, 2, 150, 8, true, 0, 1, 20},
                             Sizes{2, 2, 150, 64, true, 0.25, 1, 0, two_samples_documents(150)},
                             Sizes{2, 2, 70, 80, true, 0, 2, 30, two_samples_documents(70)},
                             Sizes{1, 2, 70, 192, true, 0, 1, 1}}) {
    SCOPED_TRACE(name(sizes));
    expect_attention(sizes, forward(sizes));
    expect_attention(sizes, backward(sizes));
  }
}

TEST_F(CudaAttention, TakesTheWorkspaceOfAFusedKernel) {
  for (const Sizes& sizes : {Sizes{1, 2, 64, 16}, Sizes{1, 4, 64, 16, true, 0, 2, 20}}) {
    SCOPED_TRACE(name(sizes));
    KernelCase of = backward(sizes);
    of.writes.push_back({Role::i32, {300000}, {}});
    expect_attention(sizes, of);
  }
}

TEST_F(CudaAttention, LargeScoresDoNotOverflow) {
  const Sizes sizes{1, 1, 40, 8, false};
  KernelCase of = forward(sizes);
  for (double& value : of.reads[0].values) value *= 64;
  expect_attention(sizes, of);
}

// Rows that start at any element are read and written one by one, for the same bits.
TEST_F(CudaAttention, HasTheSameBitsAtEveryAddress) {
  const Sizes sizes{1, 2, 35, 64, true, 0.25};
  for (const KernelCase& of : {forward(sizes), backward(sizes)}) {
    for (const DataType type : {DataType::f32, DataType::bf16})
      EXPECT_EQ(run_cuda(of, type, 1), run_cuda(of, type)) << of.kernel << " in " << to_string(type);
  }
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
    expect_attention(sizes, of, seen.values.data());
    const std::vector<Output> left = run_cpu(of, DataType::f64, DataType::bf16);
    KernelCase back = backward(sizes);
    back.reads[1].values = widened(left[0], DataType::f64);
    back.reads[2].values = widened(left[1], DataType::f64);
    back.reads.push_back(seen);
    expect_attention(sizes, back, seen.values.data());
  }
}

// Padding at the end of each sample, which cuDNN takes as a number of keys; whole and not whole tiles.
TEST_F(CudaAttention, LeavesPaddingAtTheEndOut) {
  for (const Sizes& sizes :
       {Sizes{3, 2, 128, 64, false}, Sizes{2, 2, 150, 32, false}, Sizes{2, 1, 70, 80, true}}) {
    SCOPED_TRACE(name(sizes));
    TestOperand seen{Role::i32, {sizes.tokens()}, {}};
    for (std::int64_t i = 0; i < sizes.tokens(); ++i)
      seen.values.push_back(i % sizes.sequence < 1 + 40 * (i / sizes.sequence) ? 1 : 0);
    KernelCase of = forward(sizes);
    of.attributes["padding_at_end"] = std::int64_t{1};
    of.reads.push_back(seen);
    expect_attention(sizes, of, seen.values.data());
    const std::vector<Output> left = run_cpu(of, DataType::f64, DataType::bf16);
    KernelCase back = backward(sizes);
    back.attributes = of.attributes;
    back.reads[1].values = widened(left[0], DataType::f64);
    back.reads[2].values = widened(left[1], DataType::f64);
    back.reads.push_back(seen);
    back.writes.push_back({Role::i32, {300000}, {}});
    expect_attention(sizes, back, seen.values.data());
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
  expect_attention(sizes, of, seen.values.data() + 20);
}

}  // namespace
}  // namespace stowage::test
