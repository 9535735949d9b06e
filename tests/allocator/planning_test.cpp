// Plans inside the caching allocator: iterations that come again, what differs from them, and their memory.
#include <gtest/gtest.h>

#include <vector>

#include "stowage/allocator_snapshot.h"
#include "stowage/caching_allocator.h"
#include "stowage/error.h"
#include "tests/allocator/two_streams.h"

namespace stowage {
namespace {

using Addresses = std::vector<std::byte*>;

class PlanningTest : public TwoStreams {
 protected:
  CachingAllocator allocator{device, {.history_entries = 1000, .plan_periods = true}};

  std::byte* use(Bytes bytes, LaneId lane) {
    void* const block = allocator.allocate_raw(bytes, lane);
    write_block(device, lane, block, bytes);
    return static_cast<std::byte*>(block);
  }
  // All of them, then all released.
  Addresses run(const std::vector<Bytes>& sizes, LaneId lane) {
    Addresses blocks;
    for (const Bytes bytes : sizes) blocks.push_back(use(bytes, lane));
    for (std::byte* const block : blocks) allocator.release_raw(block);
    return blocks;
  }
  Addresses iterate(const std::vector<Bytes>& sizes, LaneId lane) {
    allocator.begin_iteration();
    return run(sizes, lane);
  }
  PlanStatistics planned() const { return allocator.statistics().planned; }
};

TEST_F(PlanningTest, ServesIterationsThatComeAgainAtFixedAddresses) {
  const std::vector<Bytes> sizes{3_MiB, 1000, 5_MiB, 7_MiB};
  iterate(sizes, a);
  const Addresses second = iterate(sizes, a);
  EXPECT_EQ(planned().plans, 1u);
  EXPECT_EQ(planned().hits, 4u);
  EXPECT_EQ(planned().bytes, 15_MiB + 1024);
  EXPECT_EQ(allocator.statistics().reserved, 16_MiB);  // what the first one had is moved
  const std::uint64_t maps = allocator.statistics().maps;
  EXPECT_EQ(iterate(sizes, a), second);
  EXPECT_EQ(allocator.statistics().maps, maps);
  EXPECT_EQ(planned().misses, 0u);
  EXPECT_EQ(device.waits, 0u);
}

TEST_F(PlanningTest, FindsThePeriodItself) {
  const std::vector<Bytes> sizes{3_MiB, 1000, 5_MiB};
  for (int i = 0; i < 12; ++i) run(sizes, a);
  EXPECT_EQ(planned().plans, 1u);
  EXPECT_GE(planned().hits, 9u);
  EXPECT_EQ(planned().misses, 0u);
}

TEST_F(PlanningTest, WhatIsReleasedLateIsNotOverlapped) {
  allocator.begin_iteration();
  run({3_MiB}, a), run({3_MiB}, a);
  allocator.begin_iteration();
  std::byte* const late = use(3_MiB, a);
  std::byte* const next = use(3_MiB, a);
  EXPECT_TRUE(next + 3_MiB <= late || late + 3_MiB <= next);
  EXPECT_EQ(planned().hits, 1u);
  EXPECT_EQ(planned().misses, 1u);
}

// Nine requests of which 14 granules are live at most, and that no placement puts into fewer than 15
// (a search has shown it). Those that are released then, by the time: a request or a release at each.
constexpr int none = -1;
struct Turn {
  Bytes bytes = 0;      // 0: a release
  int released = none;  // which request's
};
constexpr Turn unfit[] = {{12_MiB}, {12_MiB}, {0, 1}, {8_MiB},  {8_MiB}, {0, 0},  {4_MiB}, {6_MiB}, {0, 3},
                          {10_MiB}, {0, 5},   {0, 2}, {12_MiB}, {0, 4},  {6_MiB}, {0, 6},  {0, 8},  {0, 7}};

TEST_F(PlanningTest, APlanWithGapsHoldsNoMoreThanItTouchesAtOnce) {
  int looks = 0;
  device.is_slow = [&] { return ++looks % 50 != 0; };  // nothing passes unless requests wait
  for (int iteration = 0; iteration < 4; ++iteration) {
    allocator.begin_iteration();
    if (iteration == 1) allocator.reset_peaks();
    Addresses blocks;
    for (const Turn& turn : unfit) {
      if (turn.bytes > 0) {
        blocks.push_back(use(turn.bytes, a));
        continue;
      }
      allocator.release_raw(blocks[static_cast<std::size_t>(turn.released)]);
    }
  }
  EXPECT_EQ(planned().plans, 1u);
  EXPECT_EQ(planned().hits, 27u);
  EXPECT_EQ(planned().bytes, 30_MiB);
  EXPECT_EQ(allocator.statistics().peak_reserved, 28_MiB);
}

// A lane that does not end stops no program: the plan waits for it once, and then holds more.
TEST_F(PlanningTest, APlanWithGapsWaitsForALaneThatDoesNotEndOnlyOnce) {
  device.is_slow = [] { return true; };
  std::size_t waits = 0, trim_waits = 0;
  for (int iteration = 0; iteration < 4; ++iteration) {
    allocator.begin_iteration();
    Addresses blocks;
    for (const Turn& turn : unfit) {
      if (turn.bytes > 0)
        blocks.push_back(use(turn.bytes, a));
      else
        allocator.release_raw(blocks[static_cast<std::size_t>(turn.released)]);
    }
    if (iteration > 0 && allocator.trim() > 0) ++trim_waits;  // the next iteration has to map anew
  }
  for (const AllocatorEvent& event : allocator.snapshot().events)
    waits += event.kind == AllocatorEventKind::synchronise ? 1 : 0;
  EXPECT_EQ(trim_waits, 3u);
  EXPECT_EQ(waits - trim_waits, 2u);  // for the new plan, and once for granules
  EXPECT_EQ(planned().hits, 27u);
  EXPECT_GT(allocator.statistics().peak_reserved, 28_MiB);
}

// Two streams whose last 4 MiB are the same bytes, one after the other. A plan gives each its own, which is
// too little to share them for.
TEST(Planning, APlanThatWouldTakeMoreThanNoneIsNotUsed) {
  const auto device = open_simulated_device({.capacity = 512_MiB, .executor = Executor::virtual_time});
  const Lane first(*device, LaneRole::compute), second(*device, LaneRole::compute);
  CachingAllocator allocator(*device, {.plan_periods = true});
  for (int iteration = 0; iteration < 3; ++iteration) {
    allocator.begin_iteration();
    void* const one = allocator.allocate_raw(56_MiB, first.id());
    void* const other = allocator.allocate_raw(56_MiB, second.id());
    allocator.release_raw(allocator.allocate_raw(4_MiB, first.id()));
    allocator.release_raw(allocator.allocate_raw(4_MiB, second.id()));
    allocator.release_raw(one);
    allocator.release_raw(other);
  }
  EXPECT_GT(allocator.statistics().planned.plans, 0u);
  EXPECT_EQ(allocator.statistics().planned.hits, 0u);
  EXPECT_EQ(allocator.statistics().peak_reserved, 116_MiB);
}

TEST_F(PlanningTest, APlansMemoryIsNotStranded) {
  for (int i = 0; i < 2; ++i) iterate(std::vector<Bytes>(15, 4_MiB), a);
  EXPECT_EQ(planned().reserved, 60_MiB);
  allocator.begin_iteration();
  std::byte* const kept = use(4_MiB, a);
  // Nothing of it was planned, and all but the one block's granules can serve it.
  Addresses others;
  for (int i = 0; i < 30; ++i) others.push_back(use(2_MiB, a));
  EXPECT_EQ(planned().reserved, 4_MiB);
  EXPECT_EQ(allocator.statistics().reserved, capacity);
  EXPECT_THROW(allocator.allocate_raw(512, b), OutOfMemory);
  for (std::byte* const block : others) allocator.release_raw(block);
  allocator.release_raw(kept);
  allocator.begin_iteration();
  run(std::vector<Bytes>(15, 4_MiB), a);
  EXPECT_GT(planned().hits, 16u);  // and the plan has it back
}

TEST_F(PlanningTest, AProgramThatChangesIsPlannedAnew) {
  const std::vector<Bytes> other(20, 1_MiB);
  for (int i = 0; i < 3; ++i) iterate({3_MiB, 4_MiB}, a);
  for (int i = 0; i < 2; ++i) iterate(other, a);
  EXPECT_EQ(planned().plans, 2u);
  const std::uint64_t hits = planned().hits;
  iterate(other, a);
  iterate({3_MiB, 4_MiB}, a);
  EXPECT_EQ(planned().hits, hits + 22);
  EXPECT_EQ(planned().plans, 2u);
}

// Two streams by turns: with bytes of its own each, a plan would take twice what is live.
TEST_F(PlanningTest, StreamsThatTakeTurnsShareBytes) {
  device.is_slow = [] { return true; };
  for (int i = 0; i < 4; ++i) {
    allocator.begin_iteration();
    run({20_MiB}, a);
    run({20_MiB - 512}, b);
  }
  EXPECT_EQ(planned().hits, 6u);
  EXPECT_EQ(planned().bytes, 20_MiB);
  EXPECT_EQ(allocator.statistics().peak_reserved, 20_MiB);
  device.loses_wait = [] { return true; };
  allocator.begin_iteration();
  EXPECT_THROW(run({20_MiB}, a), AccessViolation);
}

// Where two plans give the same bytes to different streams, nothing but a wait orders them.
TEST_F(PlanningTest, StreamsWaitForEachOtherWherePlansChange) {
  device.is_slow = [] { return true; };
  const auto first_plan = [&] { iterate(std::vector<Bytes>(12, 1_MiB), a); };
  const auto second_plan = [&] { iterate(std::vector<Bytes>(12, 1_MiB + 512), b); };
  for (int i = 0; i < 2; ++i) first_plan();
  for (int i = 0; i < 2; ++i) second_plan();
  const std::uint64_t waits = device.waits, hits = planned().hits;
  for (int i = 0; i < 3; ++i) first_plan(), second_plan();
  EXPECT_EQ(planned().hits, hits + 72);
  EXPECT_GT(device.waits, waits + 5);
  device.loses_wait = [] { return true; };
  EXPECT_THROW(first_plan(), AccessViolation);
}

}  // namespace
}  // namespace stowage
