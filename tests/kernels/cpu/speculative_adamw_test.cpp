#include "kernels/cpu/speculative_adamw.h"

#include <cmath>
#include <limits>

#include "include/stowage/error.h"
#include "kernels/cpu/undo_record.h"
#include "src/base/parallel_for.h"
#include "tests/kernels/cpu/adamw_states.h"

namespace stowage::cpu {
namespace {

using namespace stowage::cpu::test;

constexpr std::int64_t count = 50'001;  // 24 tiles and a part of one
constexpr AdamWSettings usual{0.9, 0.95, 1e-8, 0.1, 1e-3, 20};

// A record with bytes behind its room that must not be touched.
class Record {
 public:
  explicit Record(std::int64_t elements)
      : bytes_(static_cast<std::size_t>(undo_record_bytes(elements)) + guard, std::byte{0xa5}) {}
  ~Record() {
    for (std::size_t i = bytes_.size() - guard; i < bytes_.size(); ++i) EXPECT_EQ(bytes_[i], std::byte{0xa5});
  }
  Record(const Record&) = delete;
  Record& operator=(const Record&) = delete;
  std::byte* data() { return bytes_.data(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  static constexpr std::size_t guard = 64;
  std::vector<std::byte> bytes_;
};

template <class State>
std::int64_t speculate(const AdamWSettings& settings, double scale, State& state, Record& record) {
  return adamw_speculate(settings, scale, state.count(), state.operands(), record.data());
}

// What adamw gives with this scale.
template <class State>
std::vector<std::uint32_t> updated(const AdamWSettings& settings, double scale, State state) {
  adamw(settings, scale, state.count(), state.operands());
  return state.bits();
}

// Speculates with scale 1, ends it in each way, and compares every byte. Returns the elements updated ahead.
template <class State>
std::int64_t expect_exact(const AdamWSettings& settings, const State& before) {
  State state = before;
  Record record(state.count());
  const std::int64_t ahead = speculate(settings, 1, state, record);
  EXPECT_EQ(speculated_elements(state.count(), record.data()), ahead);
  for (const double true_scale : {1.0, 0.37, 1e-30, std::numeric_limits<double>::quiet_NaN()}) {
    State finished = state;
    adamw_finish(settings, 1, true_scale, finished.count(), finished.operands(), record.data());
    EXPECT_EQ(with_one_nan(finished.bits()), with_one_nan(updated(settings, true_scale, before)))
        << true_scale;
  }
  adamw_undo(settings, 1, state.count(), state.operands(), record.data());
  EXPECT_EQ(state.bits(), before.bits());
  return ahead;
}

template <class State>
class SpeculativeAdamW : public ::testing::Test {};
using States = ::testing::Types<F32State, SplitState>;
TYPED_TEST_SUITE(SpeculativeAdamW, States);

TYPED_TEST(SpeculativeAdamW, EndsAsIfTheScaleHadBeenKnownOrNothingHadRun) {
  with_each_instruction_set([] { EXPECT_EQ(expect_exact(usual, usual_state<TypeParam>(count, 1)), count); });
}

TYPED_TEST(SpeculativeAdamW, IsExactForAnyBits) {
  with_each_instruction_set([] {
    expect_exact(usual, nasty_state<TypeParam>(count, 2));
    for (const AdamWSettings& settings : std::vector<AdamWSettings>{{0.9, 0.999, 0, 0, 1e-3, 0},
                                                                    {0, 0, 1e-8, 0.1, 1e-3, 3},
                                                                    {1, 1, 1e-8, 0.1, 1e-3, 3},
                                                                    {0.5, 0.5, 1e-8, 1, 1, 30},
                                                                    {0.9, 0.95, 1e30, 1, 10, 2}}) {
      expect_exact(settings, nasty_state<TypeParam>(3 * undo_tile + 5, 3));
      expect_exact(settings, usual_state<TypeParam>(3 * undo_tile + 5, 4));
    }
  });
}

// Few nasty values among usual ones.
template <class State>
State mixed_state() {
  std::vector<float> p = normal_floats(count, 1, 0.1F), g = normal_floats(count, 2, 0.01F);
  std::vector<float> m = normal_floats(count, 3, 0.003F), v(count, 1e-4F);
  const std::vector<float> nasty = any_floats(count, 4);
  for (std::size_t i = 0; i + 3 < p.size(); i += 101) {
    p[i] = nasty[i];
    m[i + 1] = nasty[i + 1];
    v[i + 2] = nasty[i + 2];
    p[i + 3] = m[i + 3] = v[i + 3] = nasty[i + 3];
  }
  return {p, g, m, v};
}

// Such tiles fit, and their exceptions are read back.
TYPED_TEST(SpeculativeAdamW, KeepsWhatNoEstimateIsNearTo) {
  with_each_instruction_set([] { EXPECT_EQ(expect_exact(usual, mixed_state<TypeParam>()), count); });
}

TYPED_TEST(SpeculativeAdamW, WorksForAnyCountAndAlignment) {
  with_each_instruction_set([] {
    for (const std::int64_t size : {0, 1, 2, 3, 15, 16, 17, 31, 33, 2047, 2048, 2049, 4097}) {
      TypeParam state = usual_state<TypeParam>(size + 3, 6);
      state.offset = 3;
      EXPECT_EQ(expect_exact(usual, state), size);
    }
  });
}

TYPED_TEST(SpeculativeAdamW, HasTheSameBytesForAnyThreadCountAndInstructionSet) {
  std::vector<std::byte> first_record;
  std::vector<std::uint32_t> first_bits;
  with_each_instruction_set([&] {
    for (int threads = 1; threads <= 4; ++threads) {
      set_parallel_threads(threads);
      TypeParam state = usual_state<TypeParam>(count, 8);
      Record record(count);
      speculate(usual, 0.5, state, record);
      if (first_record.empty()) {
        first_record = record.bytes();
        first_bits = state.bits();
      }
      EXPECT_EQ(record.bytes(), first_record);
      EXPECT_EQ(state.bits(), first_bits);
    }
    set_parallel_threads(0);
  });
}

template <class State>
void expect_read_by_all(const State& before) {
  for (const std::string& writer : instruction_sets()) {
    use_instruction_set(writer);
    State state = before;
    Record record(count);
    speculate(usual, 1, state, record);
    with_each_instruction_set([&] {
      State undone = state, finished = state;
      adamw_undo(usual, 1, count, undone.operands(), record.data());
      EXPECT_EQ(undone.bits(), before.bits()) << writer;
      adamw_finish(usual, 1, 0.25, count, finished.operands(), record.data());
      EXPECT_EQ(with_one_nan(finished.bits()), with_one_nan(updated(usual, 0.25, before))) << writer;
    });
  }
}

TYPED_TEST(SpeculativeAdamW, ReadsTheRecordOfAnotherInstructionSet) {
  expect_read_by_all(usual_state<TypeParam>(count, 9));
  expect_read_by_all(mixed_state<TypeParam>());
}

// One tile with moments that tell nothing of the values before, one with a NaN among its gradients.
TYPED_TEST(SpeculativeAdamW, LeavesATileUntouchedThatItCannotRecordOrShouldNotUpdate) {
  std::vector<float> g = normal_floats(count, 2, 0.01F), m = normal_floats(count, 3, 0.003F);
  for (std::int64_t i = 2 * undo_tile; i < 3 * undo_tile; ++i) m[static_cast<std::size_t>(i)] *= 1e-6F;
  g[5 * undo_tile + 77] = std::numeric_limits<float>::quiet_NaN();
  g[count - 1] = std::numeric_limits<float>::infinity();
  const TypeParam before(normal_floats(count, 1, 0.1F), g, m, std::vector<float>(count, 1e-4F));
  with_each_instruction_set([&] {
    EXPECT_EQ(expect_exact(usual, before), 22 * undo_tile);
    TypeParam state = before;
    Record record(count);
    speculate(usual, 1, state, record);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t tile = i / undo_tile;
      const bool untouched = tile == 2 || tile == 5 || tile == 24;
      const auto at = static_cast<std::size_t>(i);
      ASSERT_EQ(state.first_moment[at] == before.first_moment[at], untouched) << i;
    }
  });
}

// The most exceptions that fit: 2 bytes for each of 2,048 elements hold three planes and 256 old values.
TYPED_TEST(SpeculativeAdamW, FillsTheRoomToItsLastByte) {
  for (const std::size_t exceptions : {256U, 257U}) {
    std::vector<float> m(undo_tile, 0.01F);
    for (std::size_t i = 0; i < exceptions; ++i) m[7 * i] = 1e-12F;
    const TypeParam state(std::vector<float>(undo_tile, 0.1F), std::vector<float>(undo_tile, 0.01F), m,
                          std::vector<float>(undo_tile, 1e-4F));
    EXPECT_EQ(expect_exact(usual, state), exceptions == 256 ? undo_tile : 0);
  }
}

TYPED_TEST(SpeculativeAdamW, FinishesWhatWasNotSpeculated) {
  TypeParam state = usual_state<TypeParam>(count, 11);
  const TypeParam before = state;
  Record record(count);
  adamw_not_speculated(count, record.data());
  EXPECT_EQ(speculated_elements(count, record.data()), 0);
  adamw_undo(usual, 1, count, state.operands(), record.data());
  EXPECT_EQ(state.bits(), before.bits());
  adamw_finish(usual, 1, 1, count, state.operands(), record.data());
  EXPECT_EQ(state.bits(), updated(usual, 1, before));
}

// Hundreds of steps: parameters of all sizes, rows that rarely have a gradient, spikes, clipped and skipped
// steps.
template <class State>
class Training {
 public:
  // A row is the weights of one token; the rows behind the first half are looked up every 40th step alone.
  static constexpr std::int64_t width = 256, rows = 64, elements = width * rows;

  Training() : speculated_(start()), reference_(speculated_), record_(elements) {}

  // The share of elements that the step updated ahead.
  double step(unsigned number) {
    const AdamWSettings settings{0.9, 0.95, 1e-8, 0.1, 1e-3, number};
    const std::vector<float> gradient = gradient_of(number);
    speculated_.set_gradient(gradient);
    reference_.set_gradient(gradient);
    const double scale = number % 7 == 3 ? 0.3 : 1;
    const std::int64_t ahead = speculate(settings, 1, speculated_, record_);
    if (number % 50 == 49) {  // a step that is skipped
      adamw_undo(settings, 1, elements, speculated_.operands(), record_.data());
    } else {
      adamw_finish(settings, 1, scale, elements, speculated_.operands(), record_.data());
      reference_.update_plainly(AdamWConstants<float>(settings, scale));
    }
    EXPECT_EQ(speculated_.bits(), reference_.bits()) << "step " << number;
    return static_cast<double>(ahead) / static_cast<double>(elements);
  }

 private:
  static State start() {
    const std::vector<float> zeros(elements);
    return {normal_floats(elements, 1, 0.02F), zeros, zeros, zeros};
  }
  static std::vector<float> gradient_of(unsigned number) {
    std::vector<float> gradient = normal_floats(elements, 100 + number, number % 90 == 60 ? 1.0F : 1e-3F);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] *= std::exp2(static_cast<float>(i % 13) - 6);
      if (i >= gradient.size() / 2 && number % 40 != 0) gradient[i] = 0;
    }
    return gradient;
  }

  State speculated_, reference_;
  Record record_;
};

TYPED_TEST(SpeculativeAdamW, FollowsATraining) {
  Training<TypeParam> training;
  double ahead = 0;
  constexpr unsigned steps = 400, first = 10;
  for (unsigned number = 0; number < steps; ++number) {
    const double share = training.step(number);
    if (number >= first) ahead += share / (steps - first);
  }
  EXPECT_GT(ahead, 0.95);
}

// A row without gradients for so long that its moments are denormal, then zero: nothing is lost, and nothing
// overflows.
TYPED_TEST(SpeculativeAdamW, FollowsMomentsThatVanish) {
  TypeParam state = usual_state<TypeParam>(undo_tile, 12);
  state.set_gradient(std::vector<float>(undo_tile, 0.0F));
  TypeParam reference = state;
  for (unsigned number = 20; number < 2500; ++number) {
    const AdamWSettings settings{0.9, 0.95, 1e-8, 0.1, 1e-3, number};
    Record record(undo_tile);
    const TypeParam before = state;
    ASSERT_EQ(speculate(settings, 1, state, record), undo_tile) << number;
    if (number % 10 == 0) {
      adamw_undo(settings, 1, undo_tile, state.operands(), record.data());
      ASSERT_EQ(state.bits(), before.bits()) << number;
      adamw(settings, 1, undo_tile, state.operands());
    }
    reference.update_plainly(AdamWConstants<float>(settings, 1));
    ASSERT_EQ(state.bits(), reference.bits()) << number;
  }
}

TEST(SpeculativeAdamW64, IsNeverSpeculated) {
  std::vector<double> p(count, 1), g(count, 0.5), m(count, 0.1), v(count, 0.2);
  const AdamWOperands<double> operands{p.data(), g.data(), m.data(), v.data(), p.data(), m.data(), v.data()};
  Record record(count);
  EXPECT_EQ(adamw_speculate(usual, 1, count, operands, record.data()), 0);
  EXPECT_EQ(speculated_elements(count, record.data()), 0);
  adamw_undo(usual, 1, count, operands, record.data());
  EXPECT_EQ(p, std::vector<double>(count, 1));
  std::vector<double> right(count, 1), right_m(count, 0.1), right_v(count, 0.2);
  adamw<double>(
      usual, 0.5, count,
      {right.data(), g.data(), right_m.data(), right_v.data(), right.data(), right_m.data(), right_v.data()});
  adamw_finish(usual, 1, 0.5, count, operands, record.data());
  EXPECT_EQ(p, right);
  EXPECT_EQ(m, right_m);
  EXPECT_EQ(v, right_v);
}

TEST(SpeculativeAdamWOperands, MustBeInPlace) {
  F32State state = usual_state<F32State>(100, 1), other = state;
  Record record(100);
  AdamWOperands<float> operands = state.operands();
  operands.new_first_moment = other.first_moment.data();
  EXPECT_THROW(adamw_speculate(usual, 1, 100, operands, record.data()), InvalidInput);
  EXPECT_THROW(adamw_finish(usual, 1, 1, 100, operands, record.data()), InvalidInput);
  EXPECT_THROW(adamw_undo(usual, 1, 100, operands, record.data()), InvalidInput);
}

TEST(UndoRecord, TakesTwoBytesForEachElementAndALittleForEachTile) {
  EXPECT_EQ(undo_record_bytes(0), 0);
  EXPECT_EQ(undo_record_bytes(1), 128);
  EXPECT_EQ(undo_record_bytes(2048), 4096 + 64);
  EXPECT_EQ(undo_record_bytes(2049), 4096 + 64 + 128);
  EXPECT_EQ(undo_record_bytes(2048 * 100), 100 * (4096 + 64));
  // With the weight's 4 bytes: moments of 2 bytes; and of 1, with two scales of 4 bytes for each 256
  // elements.
  EXPECT_EQ(value_record_bytes(1, 2), 64 + 64);
  EXPECT_EQ(value_record_bytes(2049, 2), 64 + 8 * 2048 + 128);
  EXPECT_EQ(value_record_bytes(2048, 1), 64 + 6 * 2048 + 64);
}

}  // namespace
}  // namespace stowage::cpu
