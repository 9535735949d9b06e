#include "kernels/cpu/compact_adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "include/stowage/error.h"
#include "kernels/math/moment_codes.h"
#include "src/base/parallel_for.h"
#include "tests/kernels/cpu/adamw_states.h"

namespace stowage::cpu::test {
namespace {

constexpr AdamWSettings settings{.beta2 = 0.99, .learning_rate = 1e-2, .step = 7};

// Moments that are kept in fewer bytes, beside the f32 moments that they were made of.
struct Bf16Store {
  std::vector<Bfloat16> first, second;
  RandomStream rounding{.seed = 3, .key = 5, .step = 7};

  explicit Bf16Store(std::int64_t count)
      : first(static_cast<std::size_t>(count)), second(static_cast<std::size_t>(count)) {}
  Bf16Moments moments() { return {first.data(), second.data(), rounding}; }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (const auto* values : {&first, &second})
      for (const Bfloat16 value : *values) all.push_back(value.bits);
    return all;
  }
  static constexpr std::int64_t bytes = 2;
};
struct EightBitStore {
  std::vector<std::uint8_t> first, second;
  std::vector<float> first_scales, second_scales;

  explicit EightBitStore(std::int64_t count)
      : first(static_cast<std::size_t>(count)),
        second(static_cast<std::size_t>(count)),
        first_scales(static_cast<std::size_t>(moment_blocks(count))),
        second_scales(static_cast<std::size_t>(moment_blocks(count))) {}
  EightBitMoments moments() {
    return {first.data(), second.data(), first_scales.data(), second_scales.data()};
  }
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all;
    for (const auto* values : {&first, &second}) all.insert(all.end(), values->begin(), values->end());
    for (const auto* scales : {&first_scales, &second_scales})
      for (const float scale : *scales) all.push_back(std::bit_cast<std::uint32_t>(scale));
    return all;
  }
  static constexpr std::int64_t bytes = 1;
};

// Calls visit(begin, count, tile) for each tile of the moments, in f32.
template <class Moments, class Visit>
void for_each_tile(const Moments& moments, std::int64_t count, const Visit& visit) {
  for (std::int64_t begin = 0; begin < count; begin += undo_tile) {
    MomentTile tile;
    const std::int64_t size = std::min(undo_tile, count - begin);
    decode(moments, begin, size, tile);
    visit(begin, size, tile);
  }
}

template <class State, class Store>
struct Compact {
  State state;
  Store store;

  explicit Compact(std::int64_t count, unsigned seed = 1)
      : state(usual_state<State>(count, seed)), store(count) {
    for (std::int64_t begin = 0; begin < count; begin += undo_tile) {
      MomentTile tile;
      const std::int64_t size = std::min(undo_tile, count - begin);
      std::copy_n(state.first_moment.begin() + begin, size, tile.first);
      std::copy_n(state.second_moment.begin() + begin, size, tile.second);
      encode(tile, begin, size, store.moments());
    }
  }
  std::int64_t count() const { return state.count(); }
  CompactAdamWOperands<typename State::Operands, decltype(store.moments())> operands() {
    return {state.operands(), store.moments()};
  }
  // Weights and moments as they are kept.
  std::vector<std::uint32_t> bits() const {
    std::vector<std::uint32_t> all = state.bits();
    all.resize(state.parameter.size());
    const std::vector<std::uint32_t> kept = store.bits();
    all.insert(all.end(), kept.begin(), kept.end());
    return all;
  }
  // The state in f32, with the moments that are kept.
  State decoded() {
    State wide = state;
    for_each_tile(store.moments(), count(),
                  [&](std::int64_t begin, std::int64_t size, const MomentTile& tile) {
                    std::copy_n(tile.first, size, wide.first_moment.begin() + begin);
                    std::copy_n(tile.second, size, wide.second_moment.begin() + begin);
                  });
    return wide;
  }
  std::vector<std::byte> record() const {
    constexpr std::int64_t weight_bytes = std::is_same_v<State, HalfState> ? 6 : 4;
    return std::vector<std::byte>(value_record_bytes(count(), Store::bytes, weight_bytes));
  }
};

template <class Case>
class CompactAdamW : public ::testing::Test {
 protected:
  void TearDown() override {
    set_parallel_threads(0);
    use_instruction_set("");
  }
};
using Cases = ::testing::Types<Compact<F32State, Bf16Store>, Compact<F32State, EightBitStore>,
                               Compact<SplitState, Bf16Store>, Compact<SplitState, EightBitStore>,
                               Compact<HalfState, Bf16Store>, Compact<HalfState, EightBitStore>>;
TYPED_TEST_SUITE(CompactAdamW, Cases);

constexpr std::int64_t counts[] = {1, 255, 256, 257, 2048, 2051, 40000};

// The weight has the bits of an update in f32 by the moments as they are kept.
TYPED_TEST(CompactAdamW, UpdatesWeightsAsF32MomentsWould) {
  for (const std::int64_t count : counts) {
    TypeParam of(count);
    auto wide = of.decoded();
    adamw(settings, 0.7, count, of.operands());
    wide.update_plainly(AdamWConstants<float>(settings, 0.7));
    std::vector<std::uint32_t> expected = wide.bits(), found = of.bits();
    expected.resize(static_cast<std::size_t>(count));
    found.resize(static_cast<std::size_t>(count));
    EXPECT_EQ(found, expected) << count << " elements";
  }
}

TYPED_TEST(CompactAdamW, HasTheSameBitsOnAnyThreadsAndInstructionSet) {
  TypeParam expected(40000);
  adamw(settings, 0.7, expected.count(), expected.operands());
  with_each_instruction_set([&] {
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      TypeParam of(40000);
      adamw(settings, 0.7, of.count(), of.operands());
      EXPECT_TRUE(of.bits() == expected.bits()) << threads << " threads";
    }
  });
}

TYPED_TEST(CompactAdamW, IsTakenBackToTheBit) {
  for (const std::int64_t count : counts) {
    TypeParam of(count);
    const TypeParam before = of;
    std::vector<std::byte> record = of.record();
    EXPECT_EQ(adamw_speculate(settings, 1, count, of.operands(), record.data()), count);
    EXPECT_FALSE(of.bits() == before.bits());
    adamw_undo(count, of.operands(), record.data());
    EXPECT_TRUE(of.bits() == before.bits()) << count << " elements";
  }
}

TYPED_TEST(CompactAdamW, EndsAsIfItHadBeenMadeOnce) {
  for (const double scale : {1.0, 0.3}) {
    for (const std::int64_t count : counts) {
      TypeParam once(count), of(count);
      adamw(settings, scale, count, once.operands());
      std::vector<std::byte> record = of.record();
      adamw_speculate(settings, 1, count, of.operands(), record.data());
      adamw_finish(settings, 1, scale, count, of.operands(), record.data());
      EXPECT_TRUE(of.bits() == once.bits()) << count << " elements, scale " << scale;
    }
  }
}

TYPED_TEST(CompactAdamW, LeavesTilesWithGradientsThatAreNotFinite) {
  TypeParam of(3 * undo_tile);
  std::vector<float> gradient = normal_floats(of.count(), 2, 0.01F);
  gradient[static_cast<std::size_t>(undo_tile) + 5] = std::numeric_limits<float>::infinity();
  of.state.set_gradient(gradient);
  const TypeParam before = of;
  std::vector<std::byte> record = of.record();
  EXPECT_EQ(adamw_speculate(settings, 1, of.count(), of.operands(), record.data()), 2 * undo_tile);
  adamw_undo(of.count(), of.operands(), record.data());
  EXPECT_TRUE(of.bits() == before.bits());
}

TYPED_TEST(CompactAdamW, IsMadeInPlace) {
  TypeParam of(8);
  auto operands = of.operands();
  std::decay_t<decltype(*operands.weights.new_parameter)> elsewhere[8];
  operands.weights.new_parameter = elsewhere;
  EXPECT_THROW(adamw(settings, 1, 8, operands), InvalidInput);
}

// Against a step of AdamW in f64: what rounding the moments costs.
template <class Case>
void expect_moments_near(double first_error, double second_error) {
  constexpr std::int64_t count = 4096;
  Case of(count);
  std::vector<double> first, second;
  const auto start = of.decoded();
  first.assign(start.first_moment.begin(), start.first_moment.end());
  second.assign(start.second_moment.begin(), start.second_moment.end());
  adamw(settings, 1, count, of.operands());
  const auto found = of.decoded();
  for (std::int64_t i = 0; i < count; i += moment_block) {
    double largest_first = 0, largest_second = 0;
    for (std::int64_t k = i; k < i + moment_block; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const auto g = static_cast<double>(of.state.gradient[at]);
      first[at] = settings.beta1 * first[at] + (1 - settings.beta1) * g;
      second[at] = settings.beta2 * second[at] + (1 - settings.beta2) * g * g;
      largest_first = std::max(largest_first, std::abs(first[at]));
      largest_second = std::max(largest_second, second[at]);
    }
    for (std::int64_t k = i; k < i + moment_block; ++k) {
      const auto at = static_cast<std::size_t>(k);
      EXPECT_NEAR(static_cast<double>(found.first_moment[at]), first[at], first_error * largest_first);
      EXPECT_NEAR(static_cast<double>(found.second_moment[at]), second[at], second_error * largest_second);
    }
  }
}

// At most half of the widest step between two codes, as a share of the block's largest magnitude: 0.9 / 64
// and 0.9 / 128, and a half more to 1, which stands in the place of the last one.
TEST(EightBitMoments, AreOffByHalfACode) {
  expect_moments_near<Compact<F32State, EightBitStore>>(0.75 * 0.9 / 64 + 1e-6, 0.75 * 0.9 / 128 + 1e-6);
}
TEST(Bf16Moments, AreOffByHalfAnUlpAndByOne) {
  expect_moments_near<Compact<F32State, Bf16Store>>(0x1p-8 + 1e-6, 0x1p-7 + 1e-6);
}

TEST(MomentCodes, AreSharesByLeadingZeros) {
  EXPECT_EQ(share_of_code(7, 0), 0);
  EXPECT_EQ(share_of_code(7, 127), 1);
  EXPECT_FLOAT_EQ(share_of_code(7, 0b1000000), 0.1F + 0.9F * 0.5F / 64);
  EXPECT_FLOAT_EQ(share_of_code(7, 0b0011010), 1e-2F * (0.1F + 0.9F * 10.5F / 16));
  EXPECT_FLOAT_EQ(share_of_code(7, 1), 1e-6F * 0.55F);
  EXPECT_FLOAT_EQ(share_of_code(8, 1), 1e-7F * 0.55F);
  for (const int bits : {7, 8})
    for (int code = 0; code + 1 < 1 << bits; ++code) {
      EXPECT_LT(share_of_code(bits, code), boundary_of_code(bits, code));
      EXPECT_LT(boundary_of_code(bits, code), share_of_code(bits, code + 1));
    }
}

// Shares at, next to and between boundaries, and draws of all sizes.
std::vector<float> hard_shares(int bits) {
  std::vector<float> all = {0, 1, 0x1p-149F, 0x1p-26F};
  for (int code = 0; code + 1 < 1 << bits; ++code) {
    const float boundary = boundary_of_code(bits, code);
    for (const float each : {boundary, std::nextafter(boundary, 0.0F), std::nextafter(boundary, 1.0F),
                             share_of_code(bits, code)})
      all.push_back(each);
  }
  std::mt19937 generator(4);
  std::uniform_real_distribution<float> exponent(-30, 0);
  for (int i = 0; i < 20000; ++i) all.push_back(std::exp2(exponent(generator)));
  return all;
}

// The host's codes are those of moment_codes.h, in every position of a tile: all blocks have the scale 1.
TEST(MomentCodes, OfTilesAreThoseOfElements) {
  for (const bool first : {true, false}) {
    std::vector<float> boundaries;
    const int bits = first ? first_moment_bits : second_moment_bits;
    for (int code = 0; code < 1 << bits; ++code) boundaries.push_back(boundary_of_code(bits, code));
    std::vector<float> values = hard_shares(bits);
    const std::size_t own = values.size();
    for (std::size_t i = 0; first && i < own; ++i) values.push_back(-values[i]);
    for (std::size_t i = 0; i < values.size(); i += 255) {
      MomentTile tile{};
      const std::size_t size = std::min<std::size_t>(255, values.size() - i);
      for (float* to : {tile.first, tile.second}) {
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i), size, to);
        to[size] = 1;
      }
      EightBitStore store(256);
      encode(tile, 0, static_cast<std::int64_t>(size) + 1, store.moments());
      for (std::size_t k = 0; k < size; ++k) {
        const float value = values[i + k];
        ASSERT_EQ(first ? store.first[k] : store.second[k],
                  first ? first_moment_code(boundaries.data(), value, 1)
                        : second_moment_code(boundaries.data(), value, 1))
            << value;
      }
    }
  }
}

// A second moment that has become 0 would be divided by.
TEST(MomentCodes, NoSecondMomentBecomesZero) {
  MomentTile tile{};
  tile.second[0] = 1;
  tile.second[1] = 1e-30F;
  EightBitStore store(3);
  encode(tile, 0, 3, store.moments());
  EXPECT_EQ(store.second, (std::vector<std::uint8_t>{255, 1, 0}));
}

TEST(MomentCodes, KeepTheLargestAndZeroExactly) {
  MomentTile tile{};
  tile.first[0] = -0.37F;
  EightBitStore store(256);
  encode(tile, 0, 256, store.moments());
  decode(store.moments(), 0, 256, tile);
  EXPECT_EQ(tile.first[0], -0.37F);
  EXPECT_EQ(tile.first[1], 0);
}

TEST(Bf16Moments, RoundUpAsOftenAsTheRestSays) {
  std::uint64_t ups = 0;
  constexpr std::uint64_t draws = 80000;
  const float value = float_of(0x3f804000U);  // a quarter of the way
  const RandomStream stream{.seed = 1, .key = 2, .step = 3};
  for (std::uint64_t element = 0; element < draws; ++element)
    ups += rounded_by_chance(value, rounding_draw(random_words(stream, element / 8), element)).bits - 0x3f80U;
  EXPECT_NEAR(static_cast<double>(ups) / draws, 0.25, 0.01);
  EXPECT_EQ(rounded_by_chance(float_of(0x3f800000U), 0xffffU).bits, 0x3f80U);
  EXPECT_EQ(rounded_by_chance(-std::numeric_limits<float>::infinity(), 0xffffU).bits, 0xff80U);
  EXPECT_TRUE(std::isnan(static_cast<float>(rounded_by_chance(float_of(0x7fffffffU), 0xffffU))));
}

// With beta2 = 0.999 a step changes the second moment by less than half of its last place.
TEST(Bf16Moments, FollowSmallChanges) {
  const AdamWSettings slow{.beta2 = 0.999, .learning_rate = 0};
  Compact<F32State, Bf16Store> of(2048);
  std::fill(of.store.second.begin(), of.store.second.end(), Bfloat16(1.0F));
  of.state.set_gradient(std::vector<float>(2048, 2.0F));
  for (std::uint64_t step = 0; step < 300; ++step) {
    of.store.rounding.step = step;
    adamw(slow, 1, of.count(), of.operands());
  }
  double mean = 0;
  for (const Bfloat16 value : of.store.second) mean += static_cast<double>(static_cast<float>(value)) / 2048;
  EXPECT_NEAR(mean, 4 - 3 * std::pow(0.999, 300), 0.01);
}

// A slice's draws are those of its elements in the whole.
TEST(Bf16Moments, OfASliceAreThoseOfTheWhole) {
  Compact<F32State, Bf16Store> whole(3000), parts(3000);
  adamw(settings, 1, 3000, whole.operands());
  for (const auto& [begin, count] : {std::pair<std::int64_t, std::int64_t>{0, 1003}, {1003, 1997}}) {
    auto operands = parts.operands();
    operands.weights = from_element(begin, operands.weights);
    operands.moments.first += begin;
    operands.moments.second += begin;
    operands.moments.rounding.first = static_cast<std::uint64_t>(begin);
    adamw(settings, 1, count, operands);
  }
  EXPECT_TRUE(parts.bits() == whole.bits());
}

}  // namespace
}  // namespace stowage::cpu::test
