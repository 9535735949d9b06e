#include "tools/replay/generated_traces.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/checked_model.h"
#include "tools/replay/caching_model.h"
#include "tools/replay/replay.h"

namespace stowage {
namespace {

using Items = std::vector<PlacementItem>;

TEST(GeneratedTraces, AreTheSameEverywhere) {
  const Items items = generated_lifetimes(1);
  ASSERT_EQ(items.size(), 761U);
  const auto at = [&](std::size_t i) {
    return std::vector<Bytes>{Bytes(items[i].first), Bytes(items[i].last), items[i].bytes};
  };
  EXPECT_EQ(at(0), (std::vector<Bytes>{78, 1694, 422456}));
  EXPECT_EQ(at(760), (std::vector<Bytes>{1705, 1707, 7948237}));
}

TEST(GeneratedTraces, HoldLongLivedAndGrowingBlocksAmongShortOnes) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const Items items = generated_lifetimes(seed);
    std::int64_t end = 0;
    for (const PlacementItem& item : items) end = std::max(end, item.last);
    const auto count = [&](auto&& is) { return std::count_if(items.begin(), items.end(), is); };
    EXPECT_GE(count([&](const PlacementItem& item) { return item.last - item.first > 3 * end / 4; }), 4);
    EXPECT_GE(count([&](const PlacementItem& item) { return item.last - item.first <= 12; }), 100);
    // What grows is made anew, larger, one moment before the old one goes.
    const auto is_grown = [&](const PlacementItem& item) {
      return std::any_of(items.begin(), items.end(), [&](const PlacementItem& old) {
        return old.last == item.first + 1 && item.bytes > old.bytes && item.bytes <= 2 * old.bytes &&
               old.last - old.first > 20 && item.last - item.first > 20;
      });
    };
    EXPECT_GE(count(is_grown), 4) << seed;
    EXPECT_TRUE(std::none_of(items.begin(), items.end(), [](const PlacementItem& item) {
      return item.first >= item.last || item.bytes == 0;
    }));
  }
}

// A few of them, in tests that must be short; bench/replay/run replays all.
TEST(GeneratedTraces, TakeAHundredthMoreThanIsLiveOncePlanned) {
  for (const std::uint64_t seed : {1, 13, 23, 41}) {
    const AllocationTrace trace = repeated(trace_of_lifetimes(generated_lifetimes(seed)), 3);
    CachingModel model(8_GiB, true);
    test::CheckedModel checked(model);
    const ReplayResult result = replay(trace, checked);
    EXPECT_EQ(result.warm.operations, 2 * trace.operations.size() / 3);
    EXPECT_EQ(result.warm.live_bytes, peak_live_bytes(trace));
    EXPECT_LE(result.warm.ratio(), 1.01) << seed;
    EXPECT_EQ(model.statistics().planned.misses, 0U);
  }
}

// Fixed places for thousands of growing blocks leave holes, in which granules move.
TEST(GeneratedTraces, PlansOfGrowingBlocksTakeAHundredthMoreThanIsLive) {
  const NamedTrace program = generated_programs(1)[1];
  ASSERT_EQ(program.name, "growing-among-short");
  CachingModel model(16_GiB, true);
  const ReplayResult result = replay(repeated(program.trace, 3), model);
  EXPECT_GT(model.statistics().planned.hits, 15'000U);
  EXPECT_EQ(model.statistics().planned.misses, 0U);
  EXPECT_LE(result.first.ratio(), 1.05);
  EXPECT_LE(result.warm.ratio(), 1.01);
}

TEST(GeneratedTraces, FreeAllThatTheyMake) {
  for (const auto& make : {generated_programs, patterned_programs, large_queues, hostile_programs})
    for (const NamedTrace& program : make(7)) {
      Bytes live = 0;
      for (const TraceOperation& operation : program.trace.operations)
        live += operation.kind == TraceKind::allocate ? operation.bytes : -operation.bytes;
      EXPECT_EQ(live, 0U) << program.name;
      EXPECT_GT(peak_live_bytes(program.trace), 100'000'000U) << program.name;
    }
}

}  // namespace
}  // namespace stowage
