#include "kernels/cpu/rotary.h"

#include <algorithm>
#include <complex>
#include <ostream>

#include "kernels/math/sine_cosine.h"
#include "tests/kernels/kernel_check.h"
#include "tests/support/printed_name.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

constexpr double epsilon = 1e-5;
constexpr double theta = 100;

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

struct RotaryCase {
  std::int64_t tokens, sequence, heads, key_heads, width;
  bool normed = false;
  bool documents = false;
  bool in_place = false;

  // Documents of several lengths: one begins at each multiple of 3 or 7 of a sample's positions.
  std::vector<std::int32_t> begins() const {
    std::vector<std::int32_t> all;
    for (std::int64_t n = 0; n < tokens; ++n) {
      const std::int64_t at = n % sequence;
      all.push_back(static_cast<std::int32_t>(documents ? std::max(at / 3 * 3, at / 7 * 7) : 0));
    }
    return all;
  }
  RotaryShape shape(const std::vector<std::int32_t>& begins_of) const {
    return {tokens,
            sequence,
            heads,
            key_heads,
            width,
            documents ? begins_of.data() : nullptr,
            rotary_frequencies(width, {.theta = theta})};
  }
  std::int64_t columns() const { return (heads + 2 * key_heads) * width; }

  template <class T>
  struct Inputs {
    std::vector<T> qkv, dy, query_gain, key_gain;
  };
  template <class T>
  Inputs<T> inputs() const {
    return {numbers<T>(tokens * columns(), 1, 3), numbers<T>(tokens * columns(), 2), numbers<T>(width, 3, 2),
            numbers<T>(width, 4, 2)};
  }

  // y, dqkv, and with norms rstd; or the gains' gradients.
  template <class T>
  struct Outputs {
    std::vector<T> rows, gains;
  };
  template <class T>
  Outputs<T> outputs() const {
    const Inputs<T> in = inputs<T>();
    const std::vector<std::int32_t> begins_of = begins();
    const RotaryShape of = shape(begins_of);
    std::vector<T> y = unwritten<T>(tokens * columns());
    std::vector<T> dqkv = in_place ? in.dy : unwritten<T>(tokens * columns());
    const T* const dy = in_place ? dqkv.data() : in.dy.data();
    if (!normed) {
      rotary(of, in.qkv.data(), y.data());
      rotary_backward(of, dy, dqkv.data());
      return {joined({y, dqkv}), {}};
    }
    std::vector<T> rstd = unwritten<T>(tokens * (heads + key_heads));
    std::vector<T> dquery_gain = unwritten<T>(width), dkey_gain = unwritten<T>(width);
    normed_rotary(of, epsilon, in.qkv.data(), in.query_gain.data(), in.key_gain.data(), y.data(),
                  rstd.data());
    normed_rotary_backward(
        of, NormedRotaryGradient<T>{in.qkv.data(), in.query_gain.data(), in.key_gain.data(), rstd.data(), dy,
                                    dqkv.data(), dquery_gain.data(), dkey_gain.data()});
    return {joined({y, dqkv, rstd}), joined({dquery_gain, dkey_gain})};
  }
  template <class T>
  std::vector<T> run() const {
    const Outputs<T> out = outputs<T>();
    return joined({out.rows, out.gains});
  }

  // dqkv by the derivative of each normalised element by each x.
  Outputs<double> reference() const {
    const Inputs<double> in = inputs<double>();
    const std::vector<std::int32_t> begins_of = begins();
    std::vector<double> y = in.qkv, dqkv = in.dy, rstds, dquery(index(width)), dkey(index(width));
    for (std::int64_t head = 0; head < tokens * (heads + 2 * key_heads); ++head) {
      const std::int64_t n = head / (heads + 2 * key_heads), of_token = head % (heads + 2 * key_heads);
      if (of_token >= heads + key_heads) continue;
      const bool is_query = of_token < heads;
      const auto position = static_cast<float>(n % sequence - begins_of[index(n)]);
      const std::vector<double> x = head_of(in.qkv, head);
      const std::vector<double> flow = turned(head_of(in.dy, head), position, -1);
      const double rstd = normed ? rstd_of(x) : 1;
      if (normed) rstds.push_back(rstd);
      std::vector<double> gain(x.size(), 1), scaled = x, dx = flow;
      if (normed) gain = is_query ? in.query_gain : in.key_gain;
      for (std::size_t i = 0; i < x.size(); ++i) scaled[i] *= rstd * gain[i];
      for (std::size_t j = 0; normed && j < x.size(); ++j) {
        dx[j] = 0;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double share = x[i] * rstd * x[j] * rstd / static_cast<double>(width);
          dx[j] += flow[i] * gain[i] * rstd * ((i == j ? 1 : 0) - share);
        }
        (is_query ? dquery : dkey)[j] += flow[j] * x[j] * rstd;
      }
      std::ranges::copy(turned(scaled, position, 1), y.begin() + head * width);
      std::ranges::copy(dx, dqkv.begin() + head * width);
    }
    return {joined({y, dqkv, rstds}), normed ? joined({dquery, dkey}) : std::vector<double>{}};
  }

 private:
  std::vector<double> head_of(const std::vector<double>& rows, std::int64_t head) const {
    return {rows.begin() + head * width, rows.begin() + (head + 1) * width};
  }
  static double rstd_of(const std::vector<double>& x) {
    double squares = 0;
    for (const double value : x) squares += value * value / static_cast<double>(x.size());
    return 1 / std::sqrt(squares + epsilon);
  }
  // By complex numbers: a pair is a + i b, and turning it multiplies it by e^(i angle).
  std::vector<double> turned(const std::vector<double>& x, float position, double direction) const {
    std::vector<double> y = x;
    const std::size_t half = x.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
      const auto frequency =
          static_cast<float>(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(width)));
      const auto angle = static_cast<double>(position * frequency);
      const std::complex<double> pair = std::complex{x[i], x[i + half]} * std::polar(1.0, direction * angle);
      y[i] = pair.real();
      y[i + half] = pair.imag();
    }
    return y;
  }
};

void PrintTo(const RotaryCase& of, std::ostream* out) {
  *out << of.tokens << " tokens " << of.heads << " and " << of.key_heads << " heads of " << of.width
       << (of.normed ? " normed" : "") << (of.documents ? " documents" : "")
       << (of.in_place ? " in place" : "");
}

class Rotary : public ::testing::TestWithParam<RotaryCase> {};

TEST_P(Rotary, AgreesWithTheDefinition) {
  const auto found = GetParam().outputs<double>();
  const auto right = GetParam().reference();
  expect_close(found.rows, right.rows, 1e-13);
  expect_close(found.gains, right.gains, 1e-11);
}

// Of a pair that is turned each product is rounded, their sum, and the factors. Norms add the rounding of
// rstd, of squares in 16 lanes, and of two products: elements are up to 2 sqrt(width) then. A gain's gradient
// has terms of that size, and partial sums of at most 64 terms, whose errors partly cancel.
TEST_P(Rotary, WorkTypeAgrees) {
  const RotaryCase& of = GetParam();
  const double largest = of.normed ? 2 * std::sqrt(static_cast<double>(of.width)) : 3 * std::sqrt(2.0);
  const double roundings = of.normed ? 8 + static_cast<double>(of.width) / 64 : 4;
  const auto found = of.outputs<float>();
  const auto right = of.outputs<double>();
  expect_close(widened(found.rows), right.rows, largest * roundings * unit);
  const double spread = std::sqrt(static_cast<double>(of.tokens * of.heads));
  expect_close(widened(found.gains), right.gains, spread * (roundings + 8) * largest * unit);
}

TEST_P(Rotary, HasTheSameBitsForAnyThreadCount) { expect_same_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(
    Shapes, Rotary,
    ::testing::Values(RotaryCase{1, 1, 1, 1, 2}, RotaryCase{24, 12, 3, 1, 6},
                      RotaryCase{60, 20, 4, 2, 64, false, true}, RotaryCase{300, 150, 2, 1, 80},
                      RotaryCase{60, 20, 1, 1, 512, false, true, true}, RotaryCase{1, 1, 1, 1, 2, true},
                      RotaryCase{24, 12, 3, 1, 6, true, true}, RotaryCase{1200, 300, 2, 1, 8, true, true},
                      RotaryCase{60, 20, 2, 1, 80, true, false, true},
                      RotaryCase{20, 20, 1, 1, 512, true, true, true}),
    stowage::test::printed_name);

// With x = (1, 0) in each pair, y is the pair's cosine and sine.
TEST(RotaryBits, AreThoseOfThePlainFunctionOnAnyInstructionSet) {
  const RotaryCase of{3000, 1500, 1, 1, 66};
  std::vector<float> x(index(of.tokens * of.columns())), y = x;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % 66 < 33 ? 1 : 0;
  const RotaryShape shape = of.shape({});
  rotary(shape, x.data(), y.data());
  for (std::int64_t n = 0; n < of.tokens; ++n)
    for (std::int64_t i = 0; i < 33; ++i) {
      const SineCosine<double> right = sine_cosine(shape.angle(shape.position(n), i));
      const std::size_t at = index(n * of.columns() + i);
      ASSERT_EQ(y[at], static_cast<float>(right.cosine)) << n << ", " << i;
      ASSERT_EQ(y[at + 33], static_cast<float>(right.sine)) << n << ", " << i;
    }
}

// At position 0 nothing turns: y is the normalised head. Squares are summed in 16 lanes, then in a tree.
TEST(RotaryBits, OfNormsAreThoseOfPlainLoops) {
  const RotaryCase of{50, 1, 2, 1, 78, true};
  const auto in = of.inputs<float>();
  const std::vector<float> y = of.run<float>();
  for (std::int64_t head = 0; head < 50 * 4; ++head) {
    if (head % 4 == 3) continue;
    float sums[16] = {};
    for (std::int64_t i = 0; i < 78; ++i) {
      const float x = in.qkv[index(head * 78 + i)];
      sums[i % 16] += x * x;
    }
    for (int distance = 8; distance > 0; distance /= 2)
      for (int k = 0; k < distance; ++k) sums[k] += sums[k + distance];
    const float rstd = 1 / std::sqrt(sums[0] / 78 + static_cast<float>(epsilon));
    for (std::int64_t i = 0; i < 78; ++i) {
      const float gain = (head % 4 < 2 ? in.query_gain : in.key_gain)[index(i)];
      ASSERT_EQ(y[index(head * 78 + i)], in.qkv[index(head * 78 + i)] * rstd * gain) << head << ", " << i;
    }
  }
}

TEST(RotaryDocuments, TurnAsIfTheyWereAlone) {
  for (const bool normed : {false, true}) {
    // A sample of 12 tokens: documents of 5 and 7, the second of which is also run alone.
    const RotaryCase both{12, 12, 2, 1, 8, normed}, alone{7, 7, 2, 1, 8, normed};
    const auto in = both.inputs<float>();
    const std::int64_t before = 5 * both.columns();
    std::vector<std::int32_t> begins{0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 5, 5};
    RotaryShape shape = both.shape({});
    shape.begins = begins.data();
    std::vector<float> y = unwritten<float>(12 * both.columns()),
                       second = unwritten<float>(7 * both.columns());
    std::vector<float> rstd(12 * 3);
    if (normed) {
      normed_rotary(shape, epsilon, in.qkv.data(), in.query_gain.data(), in.key_gain.data(), y.data(),
                    rstd.data());
      normed_rotary(alone.shape({}), epsilon, in.qkv.data() + before, in.query_gain.data(),
                    in.key_gain.data(), second.data(), rstd.data());
    } else {
      rotary(shape, in.qkv.data(), y.data());
      rotary(alone.shape({}), in.qkv.data() + before, second.data());
    }
    EXPECT_EQ(std::vector<float>(y.begin() + before, y.end()), second);
    EXPECT_NE(y, in.qkv);
  }
}

TEST(RotaryBackward, TurnsBackWhatForwardTurned) {
  const RotaryCase of{200, 100, 2, 1, 64};
  const auto in = of.inputs<float>();
  std::vector<float> y = in.qkv;
  rotary(of.shape({}), y.data(), y.data());
  EXPECT_NE(y, in.qkv);
  rotary_backward(of.shape({}), y.data(), y.data());
  expect_close(widened(y), widened(in.qkv), 3 * std::sqrt(2.0) * 6 * unit);
}

TEST(RotaryBackward, LeavesOutTheGainsGradients) {
  const RotaryCase of{24, 12, 3, 1, 6, true};
  const auto in = of.inputs<float>();
  const std::vector<float> all = of.run<float>();
  const std::int64_t size = of.tokens * of.columns();
  std::vector<float> dqkv = unwritten<float>(size);
  normed_rotary_backward(of.shape({}),
                         NormedRotaryGradient<float>{in.qkv.data(), in.query_gain.data(), in.key_gain.data(),
                                                     all.data() + 2 * size, in.dy.data(), dqkv.data()});
  EXPECT_EQ(dqkv, std::vector<float>(all.begin() + size, all.begin() + 2 * size));
}

TEST(RotaryNorms, OfZeroAreFinite) {
  const RotaryCase of{4, 4, 1, 1, 4, true};
  const auto in = of.inputs<float>();
  const std::vector<float> zero(index(4 * of.columns()));
  std::vector<float> y = unwritten<float>(4 * of.columns()), rstd(8), dqkv = y, dgains(8);
  normed_rotary(of.shape({}), epsilon, zero.data(), in.query_gain.data(), in.key_gain.data(), y.data(),
                rstd.data());
  EXPECT_EQ(y, zero);
  normed_rotary_backward(of.shape({}), NormedRotaryGradient<float>{
                                           zero.data(), in.query_gain.data(), in.key_gain.data(), rstd.data(),
                                           in.dy.data(), dqkv.data(), dgains.data(), dgains.data() + 4});
  for (const float value : dqkv) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(dgains, std::vector<float>(8));
}

}  // namespace
}  // namespace stowage::cpu
