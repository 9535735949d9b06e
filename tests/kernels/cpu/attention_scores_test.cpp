#include "kernels/cpu/attention_scores.h"

#include <algorithm>
#include <cmath>

#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

struct ScoresCase {
  AttentionShape shape;
  bool padded = false;

  std::int64_t tokens() const { return shape.samples * shape.sequence; }
  // Every fifth token is padding, but for a sample's first, and so are the last three.
  std::vector<std::int32_t> seen() const {
    std::vector<std::int32_t> seen;
    for (std::int64_t n = 0; n < tokens(); ++n) {
      const std::int64_t at = n % shape.sequence;
      seen.push_back(at == 0 || (at % 5 != 2 && at < shape.sequence - 3) ? 1 : 0);
    }
    return seen;
  }
  template <class T>
  std::vector<T> qkv() const {
    std::vector<T> narrow;
    for (const float value : numbers<float>(tokens() * shape.packed_width(), 1, 2))
      narrow.push_back(static_cast<T>(static_cast<float>(Bfloat16(value))));
    return narrow;
  }

  template <class T>
  std::vector<Sum<T>> run() const {
    const std::vector<std::int32_t> padding = seen();
    AttentionShape of = shape;
    of.seen = padded ? padding.data() : nullptr;
    const std::int64_t rows = tokens() * shape.heads;
    std::vector<T> out = unwritten<T>(tokens() * shape.width);
    std::vector<Sum<T>> log_sum_exp = unwritten<Sum<T>>(rows), by_head = unwritten<Sum<T>>(rows);
    std::vector<Sum<T>> scores = unwritten<Sum<T>>(tokens());
    attention(of, qkv<T>().data(), out.data(), log_sum_exp.data());
    attention_scores(of, qkv<T>().data(), log_sum_exp.data(), scores.data(), by_head.data());
    return scores;
  }

  // exp(query · key / sqrt(width)) of a head's tokens; 0 if the key is not seen.
  double weight(const std::vector<double>& of, std::int64_t head, std::int64_t query,
                std::int64_t key) const {
    if ((shape.causal && key > query) || (padded && seen()[static_cast<std::size_t>(key)] == 0)) return 0;
    double sum = 0;
    for (std::int64_t c = 0; c < shape.head_width(); ++c) {
      const std::int64_t from = query * shape.packed_width() + head * shape.head_width() + c;
      const std::int64_t to =
          key * shape.packed_width() + shape.width + head / shape.group() * shape.head_width() + c;
      sum += of[static_cast<std::size_t>(from)] * of[static_cast<std::size_t>(to)];
    }
    return std::exp(sum / std::sqrt(static_cast<double>(shape.head_width())));
  }
  std::vector<double> reference() const {
    const std::vector<double> of = qkv<double>();
    const std::vector<std::int32_t> padding = seen();
    std::vector<double> scores(static_cast<std::size_t>(tokens()));
    for (std::int64_t query = 0; query < tokens(); ++query) {
      if (padded && padding[static_cast<std::size_t>(query)] == 0) continue;
      const std::int64_t first = query / shape.sequence * shape.sequence;
      for (std::int64_t head = 0; head < shape.heads; ++head) {
        std::vector<double> row;
        double sum = 0;
        for (std::int64_t key = first; key < first + shape.sequence; ++key)
          sum += row.emplace_back(weight(of, head, query, key));
        for (std::size_t i = 0; i < row.size(); ++i)
          scores[static_cast<std::size_t>(first) + i] += row[i] / sum;
      }
    }
    return scores;
  }
};

AttentionShape shape_of(std::int64_t samples, std::int64_t heads, std::int64_t sequence, std::int64_t width,
                        bool causal = false, std::int64_t key_heads = 0) {
  AttentionShape shape;
  shape.samples = samples;
  shape.heads = heads;
  shape.sequence = sequence;
  shape.width = width;
  shape.causal = causal;
  shape.key_heads = key_heads;
  return shape;
}

// One token; several blocks of queries and keys; heads that are no power of two; grouped queries.
const std::vector<ScoresCase> cases = {{shape_of(1, 1, 1, 4)},
                                       {shape_of(2, 3, 19, 15), true},
                                       {shape_of(1, 5, 70, 20)},
                                       {shape_of(1, 2, 300, 8, true), true},
                                       {shape_of(2, 6, 33, 24, false, 2)}};

TEST(AttentionScores, AgreeWithTheDefinition) {
  for (const ScoresCase& of : cases) {
    const std::vector<double> right = of.reference();
    const double largest = *std::max_element(right.begin(), right.end());
    expect_close(of.run<double>(), right, 1e-13 * largest);
    expect_close(widened(of.run<float>()), right, 1e-6 * largest);
    // The inputs are bf16, and a head's rows are widened before anything is computed.
    expect_close(widened(of.run<Bfloat16>()), right, 1e-6 * largest);
    expect_close(widened(of.run<Float16>()), right, 1e-6 * largest);
  }
}

// A token is a key of every query: all scores together are the number of heads and queries that count.
TEST(AttentionScores, SumToTheQueriesOfAllHeads) {
  const ScoresCase of{shape_of(3, 7, 41, 28), true};
  const std::vector<std::int32_t> seen = of.seen();
  const std::vector<double> scores = of.run<double>();
  double sum = 0;
  for (std::size_t n = 0; n < scores.size(); ++n) {
    sum += scores[n];
    if (seen[n] == 0) {
      EXPECT_EQ(scores[n], 0) << "padding at " << n;
    }
  }
  EXPECT_NEAR(sum, 7.0 * static_cast<double>(std::count(seen.begin(), seen.end(), 1)), 1e-9);
}

TEST(AttentionScores, DoNotDependOnDropout) {
  ScoresCase of = cases[1];
  const std::vector<float> without = of.run<float>();
  of.shape.dropout = 0.5;
  EXPECT_EQ(of.run<float>(), without);
}

// Keys and queries are 0, and samples have one token: a head's log_sum_exp alone says what the key gets.
TEST(AttentionScores, AddTheHeadsInATree) {
  constexpr std::size_t samples = 40, heads = 5;
  const std::vector<float> zeros(samples * heads * 3), log_sum_exp = numbers<float>(samples * heads, 4);
  std::vector<float> sums(samples * heads), by_head(samples * heads), scores(samples);
  attention_scores(shape_of(samples * heads, 1, 1, 1), zeros.data(), log_sum_exp.data(), sums.data(),
                   by_head.data());
  attention_scores(shape_of(samples, heads, 1, heads), zeros.data(), log_sum_exp.data(), scores.data(),
                   by_head.data());
  std::size_t in_a_row = 0;  // scores that would be the same
  for (std::size_t i = 0; i < samples; ++i) {
    const float* of = sums.data() + i * heads;
    EXPECT_EQ(scores[i], ((of[0] + of[1]) + (of[2] + of[3])) + of[4]) << i;
    in_a_row += scores[i] == (((of[0] + of[1]) + of[2]) + of[3]) + of[4] ? 1 : 0;
  }
  EXPECT_LT(in_a_row, samples);
}

TEST(AttentionScores, HaveTheSameBitsForAnyThreadCount) {
  const auto expect_same = []<class T>(T, const ScoresCase& of) {
    set_parallel_threads(1);
    const auto one = of.run<T>();
    for (int threads = 2; threads <= 5; ++threads) {
      set_parallel_threads(threads);
      EXPECT_EQ(of.run<T>(), one) << threads << " threads";
    }
    set_parallel_threads(0);
  };
  for (const ScoresCase& of : {cases[1], cases[3]}) {
    expect_same(float{}, of);
    expect_same(double{}, of);
    expect_same(Bfloat16{}, of);
  }
}

}  // namespace
}  // namespace stowage::cpu
