#include "kernels/cpu/kept_rows.h"

#include <algorithm>
#include <limits>

#include "stowage/error.h"
#include "tests/kernels/kernel_check.h"
#include "tests/support/expect_refused.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;
using Rows = std::vector<std::int32_t>;

template <class A>
Rows top(std::int64_t sequence, std::int64_t keep, const std::vector<A>& scores, const Rows& seen = {}) {
  const auto samples = static_cast<std::int64_t>(scores.size()) / sequence;
  Rows rows(static_cast<std::size_t>(samples * keep), -1);
  top_tokens<A>({samples, sequence, keep, seen.empty() ? nullptr : seen.data()}, scores.data(), rows.data());
  return rows;
}

TEST(TopTokens, KeepsTheHighestScoresOfEachSampleInRisingOrder) {
  EXPECT_EQ(top<float>(4, 2, {0.5F, 3, 1, 2, 9, 1, 1, 7}), (Rows{1, 3, 4, 7}));
  EXPECT_EQ(top<double>(4, 4, {0.5, 3, 1, 2}), (Rows{0, 1, 2, 3}));
  EXPECT_EQ(top<double>(1, 1, {0.5, 3}), (Rows{0, 1}));
}

TEST(TopTokens, BreaksTiesByPosition) {
  EXPECT_EQ(top<float>(5, 3, {1, 2, 1, 1, 1}), (Rows{0, 1, 2}));
  EXPECT_EQ(top<float>(4, 1, {0, 0, 0, 0}), (Rows{0}));
  EXPECT_EQ(top<float>(2, 1, {-0.0F, 0.0F}), (Rows{0}));
}

// Token 0 is padding with the highest score.
TEST(TopTokens, PutsPaddingBehindAllOthers) {
  EXPECT_EQ(top<float>(4, 2, {9, 0, 2, 1}, {0, 1, 1, 1}), (Rows{2, 3}));
  EXPECT_EQ(top<float>(4, 3, {9, 0, 2, 1}, {0, 1, 0, 0}), (Rows{0, 1, 2}));
}

TEST(TopTokens, PutsNoNumberBehindAllButPadding) {
  const float none = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(top<float>(4, 2, {none, -5, -none, 1}), (Rows{1, 3}));
  EXPECT_EQ(top<float>(4, 3, {7, -5, none, 1}, {0, 1, 1, 1}), (Rows{1, 2, 3}));
}

// Against a sort, with many ties.
TEST(TopTokens, AgreesWithASort) {
  std::mt19937 generator(3);
  for (const std::int64_t sequence : {7, 64, 300}) {
    std::vector<double> scores;
    Rows seen;
    for (std::int64_t n = 0; n < 5 * sequence; ++n) {
      scores.push_back(static_cast<double>(generator() % 9));
      seen.push_back(generator() % 4 == 0 ? 0 : 1);
    }
    for (const std::int64_t keep : {std::int64_t{1}, sequence / 2, sequence}) {
      Rows right;
      for (std::int64_t first = 0; first < 5 * sequence; first += sequence) {
        std::vector<std::pair<double, std::int32_t>> order;
        for (std::int64_t n = first; n < first + sequence; ++n) {
          const auto at = static_cast<std::size_t>(n);
          order.emplace_back(seen[at] == 0 ? 1 : -scores[at], static_cast<std::int32_t>(n));
        }
        std::sort(order.begin(), order.end());
        Rows kept;
        for (std::int64_t i = 0; i < keep; ++i) kept.push_back(order[static_cast<std::size_t>(i)].second);
        std::sort(kept.begin(), kept.end());
        right.insert(right.end(), kept.begin(), kept.end());
      }
      EXPECT_EQ(top(sequence, keep, scores, seen), right) << keep << " of " << sequence;
    }
  }
}

struct KeptRowsCase {
  KeptRows shape{150, 0, 7};  // several chunks
  Rows rows{0, 1, 62, 64, 65, 128, 149};

  KeptRowsCase() { shape.kept = std::ssize(rows); }

  // take_rows, its gradient, add_rows to another tensor and in place
  template <class T>
  std::vector<T> run() const {
    const std::vector<T> x = numbers<T>(shape.tokens * shape.width, 1);
    const std::vector<T> y = numbers<T>(shape.kept * shape.width, 2);
    std::vector<T> taken = unwritten<T>(shape.kept * shape.width);
    std::vector<T> dx = unwritten<T>(shape.tokens * shape.width), sum = dx, in_place = x;
    take_rows(shape, x.data(), rows.data(), taken.data());
    take_rows_backward(shape, y.data(), rows.data(), dx.data());
    add_rows(shape, x.data(), y.data(), rows.data(), sum.data());
    add_rows(shape, in_place.data(), y.data(), rows.data(), in_place.data());
    return joined({taken, dx, sum, in_place});
  }

  template <class T>
  std::vector<double> reference() const {
    const std::vector<double> x = widened(numbers<T>(shape.tokens * shape.width, 1));
    const std::vector<double> y = widened(numbers<T>(shape.kept * shape.width, 2));
    std::vector<double> taken, dx(x.size()), sum = x;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto width = static_cast<std::size_t>(shape.width);
      const std::size_t at = static_cast<std::size_t>(rows[i / width]) * width + i % width;
      taken.push_back(x[at]);
      dx[at] = y[i];
      sum[at] += y[i];
    }
    return joined({taken, dx, sum, sum});
  }
};

TEST(KeptRows, AreTakenAndAddedBack) {
  const KeptRowsCase of;
  expect_close(of.run<double>(), of.reference<double>(), 0);
  expect_close(widened(of.run<float>()), of.reference<float>(), 2 * unit);
  expect_close(widened(of.run<Bfloat16>()), of.reference<Bfloat16>(), 2 * bf16_unit);
  expect_close(widened(of.run<Float16>()), of.reference<Float16>(), 2 * 0x1p-11);
}

TEST(KeptRows, HaveTheSameBitsForAnyThreadCount) { expect_same_bits(KeptRowsCase()); }

TEST(KeptRows, MustRiseWithinTheMatrix) {
  const std::vector<float> x(12);
  std::vector<float> y(12);
  const KeptRows shape{3, 2, 4};
  for (const Rows& rows : {Rows{0, 3}, {-1, 2}, {1, 1}, {2, 1}}) {
    const auto refused = [&](auto call) { expect_refused(call, "kept rows: row"); };
    refused([&] { take_rows(shape, x.data(), rows.data(), y.data()); });
    refused([&] { take_rows_backward(shape, x.data(), rows.data(), y.data()); });
    refused([&] { add_rows(shape, x.data(), x.data(), rows.data(), y.data()); });
  }
  expect_refused(
      [&] {
        take_rows(shape, x.data(), Rows{1, 3}.data(), y.data());
      },
      "kept rows: row 3 at position 1; give rising rows, here from 2 to 2");
}

}  // namespace
}  // namespace stowage::cpu
