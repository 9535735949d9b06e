#include "kernels/cpu/optimizer.h"

#include <algorithm>
#include <functional>

#include "stowage/tree_sum.h"
#include "tests/kernels/kernel_check.h"

namespace stowage::cpu {
namespace {

using namespace stowage::test;

constexpr std::int64_t count = 100003;

struct SquareSumCase {
  template <class T>
  std::vector<T> run() const {
    // As bits, to be compared whole.
    const double sum = square_sum(count, numbers<T>(count, 1).data());
    std::vector<T> bits(sizeof(double) / sizeof(T));
    std::memcpy(bits.data(), &sum, sizeof(double));
    return bits;
  }
};

// An element passes through at most the 16384 additions of its chunk and one for each later chunk.
TEST(SquareSum, IsSummedInDoublePrecisionForBothTypes) {
  long double right = 0;
  for (double value : numbers<double>(count, 1)) right += static_cast<long double>(value) * value;
  const double bound = (16384 + 7) * 0x1p-53 * static_cast<double>(right);
  EXPECT_NEAR(square_sum(count, numbers<float>(count, 1).data()), static_cast<double>(right), bound);
  EXPECT_NEAR(square_sum(count, numbers<double>(count, 1).data()), static_cast<double>(right), bound);
  EXPECT_EQ(square_sum<float>(0, nullptr), 0);
  const float three = 3;
  EXPECT_EQ(square_sum(1, &three), 9);
}

TEST(SquareSum, HasTheSameBitsForAnyThreadCount) { expect_same_bits(SquareSumCase{}); }

template <class T>
class SquareSums : public ::testing::Test {};
using SquareTypes = ::testing::Types<float, double, Bfloat16, Float16>;
TYPED_TEST_SUITE(SquareSums, SquareTypes);

// Wherever the piece lies, and whatever is behind the elements that count.
TYPED_TEST(SquareSums, ArePieceByPieceThoseOfThePieceAlone) {
  for (const std::int64_t piece : {1, 7, 1000, 16389, 33333}) {
    for (const std::int64_t counted : {std::int64_t{0}, piece - 1, 2 * piece, 3 * piece + (piece + 1) / 2}) {
      std::vector<TypeParam> x = numbers<TypeParam>(5 * piece, 1);
      std::fill(x.begin() + counted, x.end(), TypeParam(NAN));
      std::vector<double> sums = unwritten<double>(5);
      square_sum(counted, x.data(), 5, piece, sums.data());
      for (std::int64_t p = 0; p < 5; ++p) {
        const std::int64_t first = std::min(p * piece, counted), last = std::min(first + piece, counted);
        const std::vector<TypeParam> alone(x.begin() + first, x.begin() + last);
        EXPECT_EQ(sums[static_cast<std::size_t>(p)], square_sum(last - first, alone.data()))
            << "piece " << p << " of " << piece << ", " << counted << " count";
      }
    }
  }
}

struct SquareSumsCase {
  std::int64_t piece;

  template <class T>
  std::vector<double> run() const {
    std::vector<double> sums = unwritten<double>(1 + count / piece);
    square_sum(count, numbers<float>(count, 1).data(), 1 + count / piece, piece, sums.data());
    return sums;
  }
};

TEST(SquareSum, OfPiecesHasTheSameBitsForAnyThreadCount) {
  for (const std::int64_t piece : {3, 40000}) expect_same_bits_in<double>(SquareSumsCase{piece});
}

// Of `pieces` elements each, and of either sign, so that few orders of additions have the same bits.
std::vector<std::vector<double>> norm_sums(std::int64_t pieces, unsigned seed) {
  std::vector<std::vector<double>> sums;
  for (unsigned i = 0; i < 5; ++i) {
    sums.push_back(numbers<double>(pieces, 5 * seed + i));
    for (double& value : sums.back()) value = std::copysign(std::exp(9 * std::abs(value)), value);
  }
  return sums;
}

double norm_part_of(const std::vector<std::vector<double>>& sums, std::int64_t first, std::int64_t pieces) {
  std::vector<const double*> addresses;
  for (const std::vector<double>& of : sums) addresses.push_back(of.data() + first);
  return norm_part(addresses, pieces);
}

TEST(NormPart, IsTheTreeOfThePiecesSums) {
  for (std::uint32_t pieces = 1; pieces <= 64; pieces *= 2) {
    for (unsigned seed = 0; seed < 10; ++seed) {
      const std::vector<std::vector<double>> sums = norm_sums(pieces, seed);
      TreeSum<double> tree(pieces, pieces);
      for (std::size_t p = 0; p < pieces; ++p) {
        double sum = 0;
        for (const std::vector<double>& of : sums) sum += of[p];
        tree.add(sum, std::plus<>());
      }
      EXPECT_EQ(norm_part_of(sums, 0, pieces), tree.total()) << pieces << " pieces, seed " << seed;
    }
  }
}

TEST(NormPart, OfTheRanksPartsIsThatOfOneRank) {
  for (std::int64_t pieces = 1; pieces <= 16; pieces *= 2) {
    for (std::int64_t ranks = 1; ranks <= pieces; ranks *= 2) {
      for (unsigned seed = 0; seed < 10; ++seed) {
        const std::vector<std::vector<double>> sums = norm_sums(pieces, seed);
        std::vector<double> parts;
        for (std::int64_t rank = 0; rank < ranks; ++rank)
          parts.push_back(norm_part_of(sums, rank * (pieces / ranks), pieces / ranks));
        EXPECT_EQ(norm_part_of({parts}, 0, ranks), norm_part_of(sums, 0, pieces))
            << pieces << " pieces, " << ranks << " ranks, seed " << seed;
      }
    }
  }
}

TEST(NormPart, OfTheFirstSumsAddedUpAndTheRestIsThatOfAll) {
  for (std::int64_t pieces = 1; pieces <= 16; pieces *= 2) {
    std::vector<std::vector<double>> sums = norm_sums(pieces, 7);
    const double whole = norm_part_of(sums, 0, pieces);
    std::vector<const double*> first;
    for (std::size_t i = 0; i < 3; ++i) first.push_back(sums[i].data());
    std::vector<double> totals(static_cast<std::size_t>(pieces));
    add_pieces(first, pieces, totals.data());
    sums.erase(sums.begin(), sums.begin() + 3);
    sums.insert(sums.begin(), totals);
    EXPECT_EQ(norm_part_of(sums, 0, pieces), whole) << pieces << " pieces";
  }
}

TEST(ClippedNorm, ScalesOnlyAboveTheLimit) {
  ClippedNorm norm;
  norm.add(9);
  norm.add(16);
  EXPECT_EQ(norm.norm(), 5);
  EXPECT_EQ(norm.scale(1), 0.2);
  EXPECT_EQ(norm.scale(5), 1);
  EXPECT_EQ(norm.scale(6), 1);
  EXPECT_EQ(norm.scale(0), 1);
}

struct AdamWCase {
  AdamWSettings settings{0.9, 0.95, 1e-8, 0.1, 1e-2, 4};
  double scale = 0.3;

  // p, m, v after five updates in place
  template <class T>
  std::vector<T> run() const {
    std::vector<T> p = numbers<T>(count, 1);
    std::vector<T> m = numbers<T>(count, 2);
    std::vector<T> v = squares<T>();
    const std::vector<T> g = numbers<T>(count, 4);
    AdamWSettings now = settings;
    for (int update = 0; update < 5; ++update, ++now.step) {
      adamw<T>(now, scale, count, {p.data(), g.data(), m.data(), v.data(), p.data(), m.data(), v.data()});
    }
    return joined({p, m, v});
  }

  // Second moments of at least 0.01, so that the quotient by their root stays of size one.
  template <class T>
  static std::vector<T> squares() {
    std::vector<T> v = numbers<T>(count, 3);
    for (T& value : v) value = static_cast<T>(0.01F) + value * value;
    return v;
  }

  // Algorithm 2 of the paper, literally, with the library's power.
  std::vector<double> reference() const {
    std::vector<double> p = numbers<double>(count, 1);
    std::vector<double> m = numbers<double>(count, 2);
    std::vector<double> v = squares<double>();
    const std::vector<double> gradient = numbers<double>(count, 4);
    for (int update = 0; update < 5; ++update) {
      const double t = static_cast<double>(settings.step) + update + 1;
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double g = gradient[i] * scale;
        m[i] = settings.beta1 * m[i] + (1 - settings.beta1) * g;
        v[i] = settings.beta2 * v[i] + (1 - settings.beta2) * g * g;
        const double mhat = m[i] / (1 - std::pow(settings.beta1, t));
        const double vhat = v[i] / (1 - std::pow(settings.beta2, t));
        p[i] -= settings.learning_rate *
                (mhat / (std::sqrt(vhat) + settings.epsilon) + settings.weight_decay * p[i]);
      }
    }
    return joined({p, m, v});
  }
};

TEST(AdamW, AgreesWithThePaper) { expect_close(AdamWCase{}.run<double>(), AdamWCase{}.reference(), 1e-14); }

// Values of about one, about four roundings an update in each of p, m and v, five updates.
TEST(AdamW, WorkTypeAgrees) { expect_work_type_agrees(AdamWCase{}, 20 * unit); }

TEST(AdamW, HasTheSameBitsForAnyThreadCount) { expect_same_bits(AdamWCase{}); }

// A run in T, whose weights are rounded to `Weight` behind each update; in doubles, as they end.
template <class T, class Weight>
std::vector<double> weights_after_ten_steps() {
  std::vector<T> p = numbers<T>(count, 1);
  std::vector<T> m(count), v(count);
  for (std::uint64_t step = 0; step < 10; ++step) {
    // Of either sign, from one down to a thousand millionth.
    std::vector<T> g = numbers<T>(count, 10 + static_cast<unsigned>(step));
    for (std::size_t i = 0; i < g.size(); ++i)
      g[i] *= static_cast<T>(std::ldexp(1.0F, -static_cast<int>(i % 31)));
    const AdamWSettings settings{0.9, 0.95, 1e-8, 0.1, 1e-3, step};
    adamw<T>(settings, 1, count, {p.data(), g.data(), m.data(), v.data(), p.data(), m.data(), v.data()});
    for (T& weight : p) weight = static_cast<T>(static_cast<Weight>(weight));
  }
  return {p.begin(), p.end()};
}

double root_mean_square_of_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

// The order of the operations costs nothing beside the rounding of the weight itself: once for each step. (An
// update that shrinks the weight first and then subtracts the rest rounds it twice.)
TEST(AdamW, IsAsExactAsAWeightInF32CanBe) {
  const std::vector<double> exact = weights_after_ten_steps<double, double>();
  const double ours = root_mean_square_of_difference(weights_after_ten_steps<float, float>(), exact);
  const double least = root_mean_square_of_difference(weights_after_ten_steps<double, float>(), exact);
  EXPECT_GT(least, 0);
  EXPECT_LT(ours, 1.1 * least);
}

// The contract that lets a device share the update: no fused multiply-add anywhere.
TEST(AdamW, RoundsEveryOperationByItself) {
  const AdamWSettings settings{0.9, 0.95, 1e-8, 0.1, 1e-2, 4};
  const AdamWConstants<float> c(settings, 0.3);
  const std::vector<float> p = numbers<float>(count, 1);
  const std::vector<float> m = numbers<float>(count, 2);
  const std::vector<float> v = AdamWCase::squares<float>();
  const std::vector<float> g = numbers<float>(count, 4);
  std::vector<float> new_p = unwritten<float>(count);
  std::vector<float> new_m = unwritten<float>(count);
  std::vector<float> new_v = unwritten<float>(count);
  adamw<float>(settings, 0.3, count,
               {p.data(), g.data(), m.data(), v.data(), new_p.data(), new_m.data(), new_v.data()});
  for (std::size_t i = 0; i < p.size(); ++i) {
    const volatile float scaled = g[i] * c.scale;  // volatile: each result is rounded and stored
    const volatile float m_old = c.beta1 * m[i];
    const volatile float m_new = c.one_minus_beta1 * scaled;
    const volatile float moment = m_old + m_new;
    const volatile float v_old = c.beta2 * v[i];
    const volatile float v_part = c.one_minus_beta2 * scaled;
    const volatile float v_new = v_part * scaled;
    const volatile float variance = v_old + v_new;
    const volatile float mhat = moment / c.correction1;
    const volatile float vhat = variance / c.correction2;
    const volatile float root = std::sqrt(vhat);
    const volatile float below = root + c.epsilon;
    const volatile float quotient = mhat / below;
    const volatile float decay = c.weight_decay * p[i];
    const volatile float change = quotient + decay;
    const volatile float delta = c.learning_rate * change;
    const volatile float parameter = p[i] - delta;
    ASSERT_EQ(new_m[i], moment);
    ASSERT_EQ(new_v[i], variance);
    ASSERT_EQ(new_p[i], parameter);
  }
}

// The split weight is the f32 one in two pieces: with gradients that bf16 holds, every bit is the same.
TEST(SplitAdamW, HasTheBitsOfF32) {
  const AdamWSettings settings{0.9, 0.95, 1e-8, 0.1, 1e-2, 4};
  std::vector<float> p = numbers<float>(count, 1);
  std::vector<float> m = numbers<float>(count, 2);
  std::vector<float> v = AdamWCase::squares<float>();
  std::vector<Bfloat16> weight, gradient;
  std::vector<std::int16_t> low;
  std::vector<float> g;
  for (float value : p) {
    weight.push_back(split(value).weight);
    low.push_back(split(value).low);
  }
  for (float value : numbers<float>(count, 4)) {
    gradient.push_back(Bfloat16(value));
    g.push_back(static_cast<float>(gradient.back()));
  }
  std::vector<float> split_m = m, split_v = v;
  AdamWSettings now = settings;
  for (int update = 0; update < 3; ++update, ++now.step) {
    adamw<float>(now, 0.3, count, {p.data(), g.data(), m.data(), v.data(), p.data(), m.data(), v.data()});
    adamw(now, 0.3, count,
          SplitAdamWOperands{weight.data(), gradient.data(), low.data(), split_m.data(), split_v.data(),
                             weight.data(), low.data(), split_m.data(), split_v.data()});
  }
  std::vector<float> whole;
  for (std::size_t i = 0; i < p.size(); ++i) whole.push_back(joined({weight[i], low[i]}));
  EXPECT_EQ(std::memcmp(whole.data(), p.data(), p.size() * sizeof(float)), 0);
  EXPECT_EQ(split_m, m);
  EXPECT_EQ(split_v, v);
}

TEST(SquareSum, WidensF16) {
  const std::vector<Float16> x = {Float16(3), Float16(-4), Float16(0x1p-24F)};
  EXPECT_EQ(square_sum(2, x.data()), 25);
  EXPECT_EQ(square_sum(1, x.data() + 2), 0x1p-48);
}

TEST(SquareSum, WidensBf16) {
  const std::vector<Bfloat16> x = {Bfloat16(3), Bfloat16(-4), Bfloat16(0x1p-120F)};
  EXPECT_EQ(square_sum(2, x.data()), 25);
  EXPECT_EQ(square_sum(1, x.data() + 2), 0x1p-240);
}

}  // namespace
}  // namespace stowage::cpu
