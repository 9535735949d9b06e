#include "stowage/online_recompute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>

#include "tests/offload/recompute/online_program.h"

namespace stowage {
namespace {

using namespace stowage::testing;
using ::testing::HasSubstr;

constexpr Bytes plenty = 4_MiB;

OnlineOptions aligned_to(Bytes alignment) {
  OnlineOptions options;
  options.alignment = alignment;
  return options;
}

// Bytes of the least capacity, in multiples of 64, below which some halving found none that works.
Bytes least_capacity(const Program& program, Bytes works) {
  Bytes fails = 0;
  while (works - fails > 64) {
    const Bytes middle = (works + fails) / 2 / 64 * 64;
    (ProgramJudge(middle).run(program) ? works : fails) = middle;
  }
  return works;
}

class RandomPrograms : public ::testing::TestWithParam<std::uint64_t> {};

// Each run is judged by the ProgramJudge: bits, overlaps, capacity, and that nothing is left.
TEST_P(RandomPrograms, SeeTheSameBitsInAnyCapacityThatWorks) {
  std::uint64_t rebuilds = 0;
  for (std::uint64_t seed = 20 * GetParam(); seed < 20 * (GetParam() + 1); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Program program = random_program(seed);
    ProgramJudge whole(plenty);
    ASSERT_TRUE(whole.run(program));
    EXPECT_EQ(whole.statistics().evictions, 0U);
    EXPECT_EQ(whole.statistics().rebuilds, 0U);
    const Bytes need = whole.statistics().highest_byte;
    const Bytes least = least_capacity(program, need);
    for (Bytes capacity : {need, (need + least) / 2, (need + 3 * least) / 4, least}) {
      for (Eviction eviction : {Eviction::window, Eviction::single}) {
        ProgramJudge judge(capacity, eviction);
        if (!judge.run(program)) {
          EXPECT_TRUE(eviction == Eviction::single || (capacity < need && capacity > least));
          continue;
        }
        rebuilds += judge.statistics().rebuilds;
        EXPECT_EQ(judge.seen(), whole.seen());
        EXPECT_EQ(judge.statistics().ops, whole.statistics().ops);
        EXPECT_EQ(judge.statistics().op_seconds, whole.statistics().op_seconds);
      }
    }
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(rebuilds, 100U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, ::testing::Range<std::uint64_t>(0, 15));

TEST(OnlineRecompute, TheSameProgramIsEvictedTheSameWay) {
  const Program program = random_program(3);
  std::array<ProgramJudge, 2> judges{ProgramJudge(4_KiB), ProgramJudge(4_KiB)};
  for (ProgramJudge& judge : judges) judge.run(program);
  EXPECT_EQ(judges[0].statistics().evicted_bytes, judges[1].statistics().evicted_bytes);
  EXPECT_EQ(judges[0].statistics().rebuilt_seconds, judges[1].statistics().rebuilt_seconds);
}

TEST(OnlineRecompute, WindowsRebuildNoMoreThanEvictingOneByOneWhereThatLeavesGaps) {
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (Bytes capacity : {8_KiB, 12_KiB, 16_KiB, 24_KiB}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(capacity) + " bytes");
      const Program program = fragmenting_program(seed);
      ProgramJudge windows(capacity, Eviction::window);
      ProgramJudge singles(capacity, Eviction::single);
      ASSERT_TRUE(windows.run(program));
      ASSERT_TRUE(singles.run(program));
      const OnlineStatistics& window = windows.statistics();
      const OnlineStatistics& single = singles.statistics();
      EXPECT_GT(window.evictions, 0U);
      EXPECT_LE(window.evictions, single.evictions);
      EXPECT_LE(window.evicted_bytes, single.evicted_bytes);
      EXPECT_LE(window.rebuilds, single.rebuilds);
      EXPECT_LE(window.rebuilt_bytes, single.rebuilt_bytes);
      EXPECT_LE(window.rebuilt_seconds, single.rebuilt_seconds);
    }
}

// A range of 64-byte places, and ops that are counted.
class Small : public ::testing::Test {
 protected:
  static constexpr Bytes place = 64;
  alignas(64) std::array<std::byte, 8 * place> memory{};
  int runs = 0;

  OnlineRecompute make(Bytes places) { return {memory.data(), places * place, aligned_to(place)}; }
  OnlineTensor run(OnlineRecompute& runtime, const std::string& name, std::vector<OnlineTensor> reads = {},
                   Bytes places = 1, double seconds = 1) {
    const OnlineTensor tensor = runtime.declare(name, places * place);
    runtime.run({name,
                 [this, places](const OnlineOperands& operands) {
                   ++runs;
                   int sum = 1;
                   for (const std::byte* read : operands.reads) sum += static_cast<int>(*read);
                   std::memset(operands.writes[0], sum, places * place);
                 },
                 std::move(reads),
                 {tensor},
                 seconds});
    return tensor;
  }
};

TEST_F(Small, TheCheapestNeighboursGo) {
  OnlineRecompute runtime = make(4);
  const OnlineTensor cheap = run(runtime, "cheap", {}, 1, 1);
  const OnlineTensor dear = run(runtime, "dear", {}, 1, 100);
  const OnlineTensor modest = run(runtime, "modest", {}, 1, 5);
  const OnlineTensor middling = run(runtime, "middling", {}, 1, 6);
  run(runtime, "two", {}, 2);
  EXPECT_TRUE(runtime.is_live(cheap));
  EXPECT_TRUE(runtime.is_live(dear));
  EXPECT_FALSE(runtime.is_live(modest));
  EXPECT_FALSE(runtime.is_live(middling));
  EXPECT_EQ(runtime.statistics().evictions, 2U);
  EXPECT_EQ(runtime.statistics().evicted_bytes, 2 * place);
}

TEST_F(Small, WhatWasNotUsedForLongGoesFirst) {
  OnlineRecompute runtime = make(2);
  const OnlineTensor old = run(runtime, "old");
  const OnlineTensor fresh = run(runtime, "fresh");
  for (int i = 0; i < 3; ++i) runtime.run({"look", [](const OnlineOperands&) {}, {old}, {}, 1});
  run(runtime, "next");
  EXPECT_TRUE(runtime.is_live(old));
  EXPECT_FALSE(runtime.is_live(fresh));
}

// b was made from a: while a is gone, losing b too would cost both.
TEST_F(Small, WhatIsEvictedAroundATensorAddsToItsCost) {
  OnlineRecompute runtime = make(3);
  const OnlineTensor a = run(runtime, "a", {}, 1, 10);
  const OnlineTensor b = run(runtime, "b", {a}, 1, 2);
  const OnlineTensor c = run(runtime, "c", {}, 1, 50);
  auto hold_b = runtime.pin(b);
  const auto hold_c = runtime.pin(c);
  const OnlineTensor d = run(runtime, "d", {}, 1, 8);  // in a's place
  EXPECT_FALSE(runtime.is_live(a));
  { const auto let_go = std::move(hold_b); }
  run(runtime, "e", {}, 1, 1);  // b is older than d, but costs 2 + 10
  EXPECT_TRUE(runtime.is_live(b));
  EXPECT_FALSE(runtime.is_live(d));
}

TEST_F(Small, AReleasedTensorIsStillWhatOthersAreRebuiltFrom) {
  OnlineRecompute runtime = make(2);
  const OnlineTensor a = run(runtime, "a");
  const OnlineTensor b = run(runtime, "b", {a});
  runtime.release(a);
  EXPECT_EQ(runtime.statistics().live_bytes, place);
  run(runtime, "x", {}, 2);
  EXPECT_FALSE(runtime.is_live(b));
  EXPECT_EQ(runs, 3);
  const auto pin = runtime.pin(b);
  EXPECT_EQ(pin.data()[0], std::byte{2});
  EXPECT_EQ(runs, 5);
  EXPECT_EQ(runtime.statistics().rebuilds, 2U);
  EXPECT_EQ(runtime.statistics().rebuilt_seconds, 2);
  EXPECT_EQ(runtime.statistics().rebuilt_bytes, 2 * place);
}

// A thousand rounds that each read the round before: only the last is remembered.
TEST_F(Small, KeepForgetsThePast) {
  OnlineRecompute runtime = make(4);
  OnlineTensor sum = run(runtime, "sum");
  runtime.keep(sum);
  for (int round = 0; round < 1000; ++round) {
    const OnlineTensor next = run(runtime, "sum", {sum});
    runtime.keep(next);
    runtime.release(sum);
    sum = next;
    EXPECT_LE(runtime.remembered(), 2U);
  }
  run(runtime, "x", {}, 3);
  EXPECT_TRUE(runtime.is_live(sum));
}

TEST_F(Small, AKeptTensorStaysForWhatIsRebuiltFromIt) {
  OnlineRecompute runtime = make(3);
  const OnlineTensor kept = run(runtime, "kept");
  runtime.keep(kept);
  const OnlineTensor made = run(runtime, "made", {kept});
  runtime.release(kept);
  EXPECT_EQ(runtime.statistics().live_bytes, 2 * place);
  run(runtime, "x", {}, 2);
  EXPECT_FALSE(runtime.is_live(made));
  EXPECT_EQ(runtime.pin(made).data()[0], std::byte{2});
  runtime.release(made);
  EXPECT_LE(runtime.statistics().live_bytes, 2 * place);
}

TEST_F(Small, OutOfMemoryTellsWhoHoldsWhat) {
  OnlineRecompute runtime = make(4);
  const OnlineTensor a = run(runtime, "a");
  const OnlineTensor b = run(runtime, "b");
  const OnlineTensor c = run(runtime, "c");
  const auto pin = runtime.pin(b);
  const OnlineTensor big = runtime.declare("big", 3 * place);
  const auto ask = [&] { runtime.run({"make big", [](const OnlineOperands&) {}, {c}, {big}, 1}); };
  try {
    ask();
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), 3 * place);
    EXPECT_EQ(error.free_bytes(), place);
    for (const char* part :
         {"'big' needs 192 bytes", "of 256 at most 64", "'b' 64 bytes at 64 (pinned)",
          "'c' 64 bytes at 128 (read by an op", "64 bytes are free", "1 tensors with 64 bytes"})
      EXPECT_THAT(error.what(), HasSubstr(part));
  }
  EXPECT_EQ(runtime.pin(c).data()[0], std::byte{1});
  EXPECT_EQ(runtime.pin(a).data()[0], std::byte{1});
  EXPECT_THROW(runtime.pin(big), InvalidInput);
}

TEST_F(Small, MoreThanTheRangeNeverFits) {
  OnlineRecompute runtime = make(2);
  const OnlineTensor a = run(runtime, "a");
  EXPECT_THROW(run(runtime, "big", {}, 3), OutOfMemory);
  EXPECT_TRUE(runtime.is_live(a));  // nothing is evicted in vain
}

// The other result of an op that is run again: pinned, it stays where it is and as it is.
TEST_F(Small, APinnedResultIsNotWrittenAgain) {
  OnlineRecompute runtime = make(4);
  const OnlineTensor first = runtime.declare("first", place);
  const OnlineTensor second = runtime.declare("second", place);
  std::vector<const std::byte*> written;
  runtime.run({"both",
               [&](const OnlineOperands& operands) {
                 for (std::byte* write : operands.writes) {
                   written.push_back(write);
                   std::memset(write, 7, place);
                 }
               },
               {},
               {first, second},
               1});
  const auto pin = runtime.pin(second);
  run(runtime, "x", {}, 2, 100);  // behind them
  run(runtime, "y");              // in the place of `first`
  ASSERT_FALSE(runtime.is_live(first));
  EXPECT_EQ(runtime.pin(first).data()[0], std::byte{7});
  ASSERT_EQ(written.size(), 4U);
  EXPECT_EQ(written[1], pin.data());
  EXPECT_NE(written[2], pin.data());
  EXPECT_NE(written[3], pin.data());
  EXPECT_EQ(runtime.statistics().live_bytes % place, 0U);
}

TEST_F(Small, AnOpThatThrowsCountsAsNotRun) {
  OnlineRecompute runtime = make(2);
  const OnlineTensor a = run(runtime, "a");
  const OnlineTensor b = runtime.declare("b", place);
  bool fails = true;
  const OnlineOp op{"make b",
                    [&](const OnlineOperands& operands) {
                      if (fails) throw std::runtime_error("out of luck");
                      std::memset(operands.writes[0], 9, place);
                    },
                    {a},
                    {b},
                    1};
  EXPECT_THROW(runtime.run(op), std::runtime_error);
  EXPECT_FALSE(runtime.is_live(b));
  EXPECT_EQ(runtime.statistics().ops, 1U);
  fails = false;
  runtime.run(op);
  run(runtime, "x", {}, 2);
  fails = true;
  EXPECT_THROW(runtime.pin(b), std::runtime_error);  // while it is rebuilt
  fails = false;
  EXPECT_EQ(runtime.pin(b).data()[0], std::byte{9});
  for (OnlineTensor each : {a, b}) runtime.release(each);
}

TEST_F(Small, MisuseIsNamed) {
  OnlineRecompute runtime = make(2);
  const OnlineTensor a = run(runtime, "a");
  const OnlineTensor unwritten = runtime.declare("unwritten", place);
  const auto nothing = [](const OnlineOperands&) {};
  EXPECT_THROW(runtime.declare("empty", 0), InvalidInput);
  EXPECT_THROW(runtime.declare("endless", ~Bytes{0}), InvalidInput);
  EXPECT_THROW(runtime.run({"no work", {}, {}, {unwritten}, 1}), InvalidInput);
  EXPECT_THROW(runtime.run({"negative", nothing, {}, {unwritten}, -1}), InvalidInput);
  EXPECT_THROW(runtime.run({"no number", nothing, {}, {unwritten}, std::nan("")}), InvalidInput);
  EXPECT_THROW(runtime.run({"reads nothing made", nothing, {unwritten}, {}, 1}), InvalidInput);
  EXPECT_THROW(runtime.run({"writes again", nothing, {}, {a}, 1}), InvalidInput);
  EXPECT_THROW(runtime.run({"writes twice", nothing, {}, {unwritten, unwritten}, 1}), InvalidInput);
  {
    const auto pin = runtime.pin(a);
    EXPECT_THROW(runtime.release(a), InvalidInput);
  }
  runtime.release(a);
  EXPECT_THROW(runtime.release(a), InvalidInput);
  EXPECT_THROW(runtime.pin(a), InvalidInput);
  EXPECT_THROW(static_cast<void>(runtime.is_live(a)), InvalidInput);
  runtime.release(unwritten);
  EXPECT_EQ(runtime.remembered(), 0U);
  EXPECT_THROW(OnlineRecompute(memory.data() + 1, 64), InvalidInput);
  EXPECT_THROW(OnlineRecompute(memory.data(), 64, aligned_to(48)), InvalidInput);
}

// What is lost is rebuilt without a call for each link of the chain.
TEST(OnlineChain, OfAHundredThousandIsRebuilt) {
  constexpr std::size_t links = 100'000;
  std::vector<std::byte> storage((links + 2) * 64);
  std::byte* const memory = storage.data() + (align_up(reinterpret_cast<std::uintptr_t>(storage.data()), 64) -
                                              reinterpret_cast<std::uintptr_t>(storage.data()));
  OnlineRecompute runtime(memory, links * 64, aligned_to(64));
  std::vector<OnlineTensor> chain;
  for (std::size_t i = 0; i < links; ++i) {
    const OnlineTensor next = runtime.declare("link", 64);
    runtime.run({"next",
                 [](const OnlineOperands& operands) {
                   std::uint32_t value = 0;
                   if (!operands.reads.empty()) std::memcpy(&value, operands.reads[0], sizeof value);
                   ++value;
                   std::memcpy(operands.writes[0], &value, sizeof value);
                 },
                 chain.empty() ? std::vector<OnlineTensor>{} : std::vector<OnlineTensor>{chain.back()},
                 {next},
                 1});
    chain.push_back(next);
  }
  const OnlineTensor all = runtime.declare("all", links * 64);
  runtime.run({"fill", [](const OnlineOperands&) {}, {}, {all}, 1});
  EXPECT_EQ(runtime.statistics().evictions, links);
  runtime.release(all);
  std::uint32_t value = 0;
  std::memcpy(&value, runtime.pin(chain.back()).data(), sizeof value);
  EXPECT_EQ(value, links);
  EXPECT_EQ(runtime.statistics().rebuilds, links);
}

}  // namespace
}  // namespace stowage
