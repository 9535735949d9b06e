// Every kernel in bf16 and f16 against the same kernel in f32 on the same numbers: a result is that of f32,
// rounded once. And the same bits for any number of threads.
#include <functional>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/cross_entropy.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embedding.h"
#include "kernels/cpu/layer_norm.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_cross_entropy.h"
#include "kernels/cpu/rotary.h"
#include "kernels/cpu/storage.h"
#include "kernels/cpu/swiglu.h"
#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

// Numbers that the narrow type N holds, as T.
template <class N, class T>
std::vector<T> draws(std::int64_t count, unsigned seed, float range = 1.0F) {
  std::vector<T> values;
  for (const float value : numbers<float>(count, seed, range))
    values.push_back(static_cast<T>(static_cast<float>(N(value))));
  return values;
}

// Appends values to `all`, rounded to N if they are results (T) and not statistics.
template <class N, class T>
void append(std::vector<float>& all, const std::vector<T>& values) {
  for (const T value : values) all.push_back(static_cast<float>(N(static_cast<float>(value))));
}

template <class N>
inline constexpr bool is_half = std::is_same_v<N, Float16>;
// Half the distance from 1 to the next number of N: what one rounding adds at most.
template <class N>
inline constexpr double narrow_unit = is_half<N> ? 0x1p-11 : bf16_unit;
template <class N>
float last_place(float value) {
  return std::max(2 * static_cast<float>(narrow_unit<N>) * std::abs(value), is_half<N> ? 0x1p-24F : 0.0F);
}

// kernel(T{}) returns all outputs, appended. `steps`: last places of N that a result may
// differ by.
template <class N, class Kernel>
void expect_rounded_once(const Kernel& kernel, float steps = 0) {
  const std::vector<float> narrow = kernel(N{});
  const std::vector<float> wide = kernel(float{});
  ASSERT_EQ(narrow.size(), wide.size());
  for (std::size_t i = 0; i < narrow.size(); ++i)
    ASSERT_TRUE(std::abs(narrow[i] - wide[i]) <= steps * last_place<N>(wide[i]))
        << "element " << i << " is " << narrow[i] << ", not " << wide[i];
  for (int threads = 1; threads <= 4; ++threads) {
    set_parallel_threads(threads);
    EXPECT_EQ(kernel(N{}), narrow) << threads << " threads";
  }
  set_parallel_threads(0);
}

template <class N>
class NarrowKernels : public ::testing::Test {};
using NarrowTypes = ::testing::Types<Bfloat16, Float16>;
TYPED_TEST_SUITE(NarrowKernels, NarrowTypes);

constexpr std::int64_t many = 40'003;  // several chunks, and a block that is not full

TYPED_TEST(NarrowKernels, Adds) {
  using N = TypeParam;
  expect_rounded_once<N>([]<class T>(T) {
    const auto a = draws<N, T>(many, 1), b = draws<N, T>(many, 2, 100);
    auto y = unwritten<T>(many), dropped = b;
    add(many, a.data(), b.data(), y.data());
    add_dropout({7, 1, 2}, 0.25, many, a.data(), dropped.data(), dropped.data());
    std::vector<float> all;
    append<N>(all, y);
    append<N>(all, dropped);
    return all;
  });
}

TYPED_TEST(NarrowKernels, ComputesElementByElement) {
  using N = TypeParam;
  for (GeluForm form : {GeluForm::tanh, GeluForm::erf})
    expect_rounded_once<N>([form]<class T>(T) {
      const auto x = draws<N, T>(many, 1, 4), dy = draws<N, T>(many, 2);
      auto y = unwritten<T>(many), bent = unwritten<T>(many), dropped = unwritten<T>(many), dx = dy,
           dbent = dy;
      gelu(form, many, x.data(), y.data());
      gelu_backward(form, many, x.data(), dx.data(), dx.data());
      tanh(many, x.data(), bent.data());
      tanh_backward(many, x.data(), dbent.data(), dbent.data());
      dropout({7, 1, 2}, 0.25, many, x.data(), dropped.data());
      std::vector<float> all;
      for (const auto* values : {&y, &dx, &bent, &dbent, &dropped}) append<N>(all, *values);
      return all;
    });
}

TYPED_TEST(NarrowKernels, GatesElements) {
  using N = TypeParam;
  expect_rounded_once<N>([]<class T>(T) {
    const auto gate = draws<N, T>(many, 1, 4), up = draws<N, T>(many, 2);
    auto y = unwritten<T>(many), dup = unwritten<T>(many);
    auto dgate = draws<N, T>(many, 3);  // holds dy
    swiglu(many, gate.data(), up.data(), y.data());
    swiglu_backward(many, gate.data(), up.data(), dgate.data(), dgate.data(), dup.data());
    std::vector<float> all;
    for (const auto* values : {&y, &dgate, &dup}) append<N>(all, *values);
    return all;
  });
}

TYPED_TEST(NarrowKernels, SumsColumns) {
  using N = TypeParam;
  for (std::int64_t columns : {5, 131})
    expect_rounded_once<N>([columns]<class T>(T) {
      const auto x = draws<N, T>(700 * columns, 1);
      auto sum = unwritten<T>(columns);
      auto wide = unwritten<float>(columns);
      column_sum(700, columns, x.data(), sum.data());
      column_sum(700, columns, x.data(), wide.data());
      column_sum(700, columns, x.data(), wide.data(), true);
      std::vector<float> all;
      append<N>(all, sum);
      append<N>(all, wide);
      return all;
    });
}

TYPED_TEST(NarrowKernels, NormalisesRows) {
  using N = TypeParam;
  for (const bool with_before : {false, true})
    for (const auto& [rows, width] : {std::pair{3, 5}, {301, 131}, {2, 3000}})
      expect_rounded_once<N>([=, rows = rows, width = width]<class T>(T) {
        const auto x = draws<N, T>(rows * width, 1, 3), gain = draws<N, T>(width, 2),
                   bias = draws<N, T>(width, 3);
        const auto before = draws<N, T>(rows * width, 5);
        auto y = unwritten<T>(rows * width), dgain = unwritten<T>(width), dbias = unwritten<T>(width);
        auto dx = draws<N, T>(rows * width, 4);  // holds dy
        auto mean = unwritten<float>(rows), rstd = unwritten<float>(rows);
        layer_norm(rows, width, 1e-5, x.data(), gain.data(), bias.data(), y.data(), mean.data(), rstd.data());
        layer_norm_backward_parameters(rows, width, x.data(), mean.data(), rstd.data(), dx.data(),
                                       dgain.data(), dbias.data());
        layer_norm_backward(rows, width, x.data(), gain.data(), mean.data(), rstd.data(), dx.data(),
                            with_before ? before.data() : nullptr, dx.data());
        std::vector<float> all;
        for (const auto* values : {&y, &dgain, &dbias, &dx}) append<N>(all, *values);
        all.insert(all.end(), mean.begin(), mean.end());  // statistics have every bit of f32
        all.insert(all.end(), rstd.begin(), rstd.end());
        return all;
      });
}

TYPED_TEST(NarrowKernels, NormalisesRowsByTheirSquares) {
  using N = TypeParam;
  for (const bool with_before : {false, true})
    for (const auto& [rows, width] : {std::pair{3, 5}, {301, 131}, {2, 3000}})
      expect_rounded_once<N>([=, rows = rows, width = width]<class T>(T) {
        const auto x = draws<N, T>(rows * width, 1, 3), gain = draws<N, T>(width, 2);
        const auto before = draws<N, T>(rows * width, 5);
        auto y = unwritten<T>(rows * width), dgain = unwritten<T>(width);
        auto dx = draws<N, T>(rows * width, 4);  // holds dy
        auto rstd = unwritten<float>(rows);
        rms_norm(rows, width, 1e-5, x.data(), gain.data(), y.data(), rstd.data());
        rms_norm_backward_parameters(rows, width, x.data(), rstd.data(), dx.data(), dgain.data());
        rms_norm_backward(rows, width, x.data(), gain.data(), rstd.data(), dx.data(),
                          with_before ? before.data() : nullptr, dx.data());
        std::vector<float> all;
        for (const auto* values : {&y, &dgain, &dx}) append<N>(all, *values);
        all.insert(all.end(), rstd.begin(), rstd.end());
        return all;
      });
}

// A table of more rows than are summed at a time; few of them share the tokens, so that sums are long.
TYPED_TEST(NarrowKernels, EmbedsTokens) {
  using N = TypeParam;
  expect_rounded_once<N>([]<class T>(T) {
    constexpr EmbeddingShape shape{900, 131, 1300, 30};
    std::mt19937 generator(3);
    std::vector<std::int32_t> tokens;
    for (int i = 0; i < 900; ++i) tokens.push_back(static_cast<std::int32_t>(generator() % 7 * 216));
    const auto table = draws<N, T>(1300 * 131, 1), positions = draws<N, T>(30 * 131, 2),
               dy = draws<N, T>(900 * 131, 3);
    auto y = unwritten<T>(900 * 131), bare = y, dtable = unwritten<T>(1300 * 131),
         dpositions = unwritten<T>(30 * 131);
    embedding(shape, tokens.data(), table.data(), positions.data(), y.data());
    embedding<T>(shape, tokens.data(), table.data(), nullptr, bare.data());
    embedding_backward(shape, tokens.data(), dy.data(), dtable.data());
    position_backward(shape, dy.data(), dpositions.data());
    std::vector<float> all;
    for (const auto* values : {&y, &bare, &dtable, &dpositions}) append<N>(all, *values);
    return all;
  });
}

TYPED_TEST(NarrowKernels, TakesFirstTokens) {
  using N = TypeParam;
  expect_rounded_once<N>([]<class T>(T) {
    const auto x = draws<N, T>(6 * 5 * 7, 1), dy = draws<N, T>(6 * 7, 2);
    auto y = unwritten<T>(6 * 7), dx = unwritten<T>(6 * 5 * 7);
    first_token({6, 5, 7}, x.data(), y.data());
    first_token_backward({6, 5, 7}, dy.data(), dx.data());
    std::vector<float> all;
    append<N>(all, y);
    append<N>(all, dx);
    return all;
  });
}

TYPED_TEST(NarrowKernels, TurnsHeads) {
  using N = TypeParam;
  for (const std::int64_t width : {6, 80})
    expect_rounded_once<N>([width]<class T>(T) {
      const RotaryShape shape{240, 60, 3, 2, width, nullptr, rotary_frequencies(width, {})};
      const std::int64_t count = 240 * shape.columns();
      const auto qkv = draws<N, T>(count, 1, 3), dy = draws<N, T>(count, 2);
      const auto query_gain = draws<N, T>(width, 3), key_gain = draws<N, T>(width, 4);
      auto y = unwritten<T>(count), normed = y, dqkv = dy, normed_dqkv = dy;
      auto rstd = unwritten<float>(240 * 5);
      auto dquery_gain = unwritten<T>(width), dkey_gain = unwritten<T>(width);
      rotary(shape, qkv.data(), y.data());
      rotary_backward(shape, dqkv.data(), dqkv.data());
      normed_rotary(shape, 1e-5, qkv.data(), query_gain.data(), key_gain.data(), normed.data(), rstd.data());
      normed_rotary_backward(shape, NormedRotaryGradient<T>{qkv.data(), query_gain.data(), key_gain.data(),
                                                            rstd.data(), dy.data(), normed_dqkv.data(),
                                                            dquery_gain.data(), dkey_gain.data()});
      std::vector<float> all;
      for (const auto* values : {&y, &dqkv, &normed, &normed_dqkv, &dquery_gain, &dkey_gain})
        append<N>(all, *values);
      all.insert(all.end(), rstd.begin(), rstd.end());
      return all;
    });
}

// Padding, dropout, several heads and samples, and more rows than one block has.
TYPED_TEST(NarrowKernels, Attends) {
  using N = TypeParam;
  for (const bool causal : {false, true})
    expect_rounded_once<N>([causal]<class T>(T) {
      AttentionShape shape{2, 3, 300, 3 * 10, causal, 0.2, {7, 1, 2, 40}};
      std::vector<std::int32_t> seen(600, 1);
      std::fill(seen.begin() + 550, seen.end(), 0);
      shape.seen = seen.data();
      const auto qkv = draws<N, T>(600 * 90, 1, 2), dout = draws<N, T>(600 * 30, 2);
      auto out = unwritten<T>(600 * 30), dqkv = unwritten<T>(600 * 90);
      auto log_sum_exp = unwritten<float>(2 * 3 * 300);
      attention(shape, qkv.data(), out.data(), log_sum_exp.data());
      const auto given = draws<N, T>(600 * 30, 3);  // the same for both types
      attention_backward(shape, qkv.data(), given.data(), log_sum_exp.data(), dout.data(), dqkv.data());
      std::vector<float> all;
      append<N>(all, out);
      append<N>(all, dqkv);
      all.insert(all.end(), log_sum_exp.begin(), log_sum_exp.end());
      return all;
    });
}

// Gradients of shared keys and values are added in f32.
TYPED_TEST(NarrowKernels, AttendsInGroups) {
  using N = TypeParam;
  expect_rounded_once<N>([]<class T>(T) {
    AttentionShape shape{2, 4, 300, 4 * 10, true, 0.2, {7, 1, 2, 40}};
    shape.key_heads = 2;
    shape.window = 90;
    std::vector<std::int32_t> begins(600, 0);
    std::fill(begins.begin() + 40, begins.begin() + 300, 40);
    shape.begins = begins.data();
    const auto qkv = draws<N, T>(600 * 80, 1, 2), dout = draws<N, T>(600 * 40, 2);
    auto out = unwritten<T>(600 * 40), dqkv = unwritten<T>(600 * 80);
    auto log_sum_exp = unwritten<float>(2 * 4 * 300);
    attention(shape, qkv.data(), out.data(), log_sum_exp.data());
    const auto given = draws<N, T>(600 * 40, 3);  // the same for both types
    attention_backward(shape, qkv.data(), given.data(), log_sum_exp.data(), dout.data(), dqkv.data());
    std::vector<float> all;
    append<N>(all, out);
    append<N>(all, dqkv);
    all.insert(all.end(), log_sum_exp.begin(), log_sum_exp.end());
    return all;
  });
}

std::vector<std::int32_t> some_targets(int rows, int vocabulary) {
  std::mt19937 generator(7);
  std::vector<std::int32_t> targets;
  for (int i = 0; i < rows; ++i)
    targets.push_back(
        i % 5 == 0 ? -1 : static_cast<std::int32_t>(generator() % static_cast<unsigned>(vocabulary)));
  return targets;
}

// The compiler may add a row's exponentials in another order: a last bit of f32, and so of N, may differ.
TYPED_TEST(NarrowKernels, DifferentiatesTheLoss) {
  using N = TypeParam;
  const auto targets = some_targets(70, 301);
  expect_rounded_once<N>(
      [&]<class T>(T) {
        const Logits shape{70, 301, 320};
        auto logits = draws<N, T>(70 * 320, 1, 5);
        auto dlogits = unwritten<T>(70 * 320);
        auto log_sum_exp = unwritten<float>(70);
        std::vector<double> loss(2);
        cross_entropy(shape, logits.data(), targets.data(), loss.data(), log_sum_exp.data());
        cross_entropy_backward(shape, logits.data(), targets.data(), log_sum_exp.data(), dlogits.data());
        loss[1] = cross_entropy_in_place(shape, 56, 0, targets.data(), logits.data()) / 56;
        EXPECT_NEAR(loss[0], loss[1], 1e-6 * loss[0]);
        std::vector<float> all;
        append<N>(all, dlogits);
        append<N>(all, logits);
        append<N>(all, log_sum_exp);
        append<N>(all, loss);
        return all;
      },
      1);
}

template <class N>
struct Head {
  std::int64_t chunk = 0;
  double loss_scale = 1024;  // keeps gradients of f16 from being denormal

  // dx, dweight, dbias and the loss
  template <class T>
  std::vector<double> run() const {
    constexpr LinearShape shape{700, 64, 300, true};
    const auto targets = some_targets(700, 290);
    const auto x = draws<N, T>(700 * 64, 1), weight = draws<N, T>(300 * 64, 2), bias = draws<N, T>(300, 3);
    auto dx = unwritten<T>(700 * 64), dweight = unwritten<T>(300 * 64), dbias = unwritten<T>(300);
    auto logits = unwritten<T>(chunk * 300);
    auto dweight_sum = unwritten<Sum<T>>(300 * 64), dbias_sum = unwritten<Sum<T>>(300);
    double loss = -1;
    linear_cross_entropy<T>({shape, chunk, x.data(), weight.data(), targets.data(), nullptr, 0, &loss,
                             dx.data(), dweight.data(), logits.data(), 290, bias.data(), dbias.data(),
                             dweight_sum.data(), dbias_sum.data(), loss_scale});
    std::vector<double> all{loss};
    for (const auto* values : {&dx, &dweight, &dbias}) {
      const std::vector<double> wide = widened(*values);
      all.insert(all.end(), wide.begin(), wide.end());
    }
    return all;
  }
};

// Of the gradients, relative to their size.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double off = 0, size = 0;
  for (std::size_t i = 1; i < a.size(); ++i) {
    off += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(off / size);
}

// Logits of up to 10 are rounded, then their gradients, then the results. Rounding the sums with each of 88
// chunks would lose many times as much.
TYPED_TEST(NarrowKernels, SumsTheHeadsGradientsOverChunksInF32) {
  using N = TypeParam;
  const std::vector<double> right = Head<N>{700}.template run<float>();
  for (const std::int64_t chunk : {8, 128, 700}) {
    const std::vector<double> found = Head<N>{chunk}.template run<N>();
    EXPECT_NEAR(found[0], right[0], 5 * narrow_unit<N>) << chunk;
    EXPECT_LE(distance(found, right), 2 * narrow_unit<N>) << chunk;
    EXPECT_LE(distance(found, Head<N>{700}.template run<N>()), narrow_unit<N> / 2) << chunk;
    set_parallel_threads(1);
    EXPECT_EQ(Head<N>{chunk}.template run<N>(), found);
    set_parallel_threads(0);
  }
}

}  // namespace
}  // namespace stowage::cpu
