#include "kernels/cpu/adamw_simd.h"

#include <algorithm>
#include <utility>

#include "include/stowage/error.h"
#include "src/base/parallel_for.h"
#include "tests/kernels/cpu/adamw_states.h"
#include "tests/support/draws.h"

namespace stowage::cpu {
namespace {

using namespace stowage::cpu::test;

constexpr AdamWSettings usual{0.9, 0.95, 1e-8, 0.1, 1e-2, 4};
// Constants that divide by zero, overflow or vanish.
const std::vector<AdamWSettings> unusual = {
    {0.9, 0.999, 0, 0, 1e-3, 0}, {0, 0, 1e-8, 0.1, 1e-3, 3},
    {1, 1, 1e-8, 0.1, 1e-3, 3},  {0.5, 0.5, 1e-8, 10, 0.1, 1'000'000},
    {0.9, 0.95, 1e30, 1, 1, 2},  {1 - 1e-9, 1 - 1e-9, 1e-8, 0.1, 1e-3, 0}};

template <class State>
class AdamWInVectors : public ::testing::Test {};
using States = ::testing::Types<F32State, SplitState, HalfState>;
TYPED_TEST_SUITE(AdamWInVectors, States);

template <class State>
void expect_reference_bits(const AdamWSettings& settings, double scale, State state) {
  State reference = state;
  reference.update_plainly(AdamWConstants<float>(settings, scale));
  adamw(settings, scale, state.count(), state.operands());
  ASSERT_EQ(with_one_nan(state.bits()), with_one_nan(reference.bits()));
}

TYPED_TEST(AdamWInVectors, HasTheBitsOfOneElementAfterAnother) {
  with_each_instruction_set([] {
    expect_reference_bits(usual, 0.3, usual_state<TypeParam>(100'003, 1));
    expect_reference_bits(usual, 1, nasty_state<TypeParam>(100'003, 2));
    for (const AdamWSettings& settings : unusual)
      expect_reference_bits(settings, 1, nasty_state<TypeParam>(20'011, 3));
  });
}

TYPED_TEST(AdamWInVectors, HasThemForAnyCountAndAlignment) {
  with_each_instruction_set([] {
    for (std::int64_t count = 0; count < 70; ++count) {
      for (std::size_t offset = 0; offset < 4; ++offset) {
        TypeParam state = usual_state<TypeParam>(count + static_cast<std::int64_t>(offset), 5);
        state.offset = offset;
        expect_reference_bits(usual, 1, state);
      }
    }
  });
}

TYPED_TEST(AdamWInVectors, HasThemForAnyThreadCount) {
  with_each_instruction_set([] {
    for (int threads = 1; threads <= 4; ++threads) {
      set_parallel_threads(threads);
      expect_reference_bits(usual, 1, usual_state<TypeParam>(100'003, 7));
    }
    set_parallel_threads(0);
  });
}

// Corrections of many steps divide moments of many mantissas. With this epsilon and no decay, -lr * m /
// correction is the weight.
TEST(AdamWInVectorsOfF32, DividesByTheCorrectionsExactly) {
  constexpr std::int64_t mantissas = 1 << 17;
  std::vector<float> m(mantissas);
  for (std::uint32_t i = 0; i < mantissas; ++i) m[i] = float_of(0x3f800000U + (i << 6U) + i % 61);
  const std::vector<float> zeros(mantissas);
  with_each_instruction_set([&] {
    for (std::uint64_t step = 0; step < stowage::testing::draws<std::uint64_t>(40, 4); ++step) {
      const AdamWSettings settings{0.9, 0.95, 1, 0, 1, step};
      expect_reference_bits(settings, 1, F32State(zeros, zeros, m, std::vector<float>(mantissas, 0x1p-60F)));
      expect_reference_bits(settings, 1, F32State(zeros, zeros, std::vector<float>(mantissas, 1.0F), m));
    }
  });
}

// The first quotient of these is wrong in its last place; only its correction is right. Found by trying all
// mantissas.
TEST(AdamWInVectorsOfF32, DividesExactlyWhereTheFirstQuotientIsOff) {
  const std::vector<std::pair<std::uint64_t, std::uint32_t>> step_and_moment = {{31, 0x3f920f31U},
                                                                                {41, 0x3fee85c5U}};
  with_each_instruction_set([&] {
    for (const auto& [step, moment] : step_and_moment) {
      // Old moments that 0.9 brings to this one and to those beside it.
      std::vector<float> m;
      const float before = float_of(moment) / 0.9F;
      for (std::uint32_t i = 0; i < 64; ++i)
        m.push_back(float_of(std::bit_cast<std::uint32_t>(before) - 32 + i));
      const std::vector<float> zeros(m.size());
      F32State state(zeros, zeros, m, std::vector<float>(m.size(), 0x1p-60F));
      expect_reference_bits(AdamWSettings{0.9, 0.95, 1, 0, 1, step}, 1, state);
      state.update_plainly(AdamWConstants<float>({0.9, 0.95, 1, 0, 1, step}, 1));
      EXPECT_NE(std::count(state.first_moment.begin(), state.first_moment.end(), float_of(moment)), 0);
    }
  });
}

// Moments at both ends of the sizes that are divided quickly, and beyond them.
TEST(AdamWInVectorsOfF32, DividesTheSmallestAndTheLargestMomentsExactly) {
  std::vector<float> m, v;
  for (std::uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (std::uint32_t i = 0; i < 64; ++i) {
      m.push_back(float_of((i % 2) << 31U | exponent << 23U | i * 0x1f351U));
      v.push_back(float_of(exponent << 23U | i * 0x1e2d3U));
    }
  }
  const std::vector<float> zeros(m.size()), tiny(m.size(), 0x1p-60F);
  with_each_instruction_set([&] {
    for (const AdamWSettings& settings :
         {AdamWSettings{0.9, 0.95, 1, 0, 1, 3}, AdamWSettings{0.9, 0.95, 0, 0, 1e-3, 7}}) {
      expect_reference_bits(settings, 1, F32State(zeros, zeros, m, tiny));
      expect_reference_bits(settings, 1, F32State(zeros, zeros, std::vector<float>(m.size(), 1.0F), v));
    }
  });
}

TEST(InstructionSets, AreUsedOneByOne) {
  const std::vector<std::string> names = instruction_sets();
  ASSERT_FALSE(names.empty());
  with_each_instruction_set([] {});
  EXPECT_EQ(instruction_set_in_use(), names.front());
  for (const std::string& name : names) {
    use_instruction_set(name);
    EXPECT_EQ(instruction_set_in_use(), name);
  }
  use_instruction_set("");
  EXPECT_EQ(instruction_set_in_use(), names.front());
  EXPECT_THROW(use_instruction_set("Z80"), InvalidInput);
#if defined(__x86_64__)
  EXPECT_TRUE(names.back() == "SCALAR" || names.back() == "EMU128") << names.back();
#endif
}

}  // namespace
}  // namespace stowage::cpu
