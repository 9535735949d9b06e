// Plans inside the caching allocator: iterations that come again, what differs from them, and their memory.
#include <gtest/gtest.h>

#include <vector>

#include "stowage/caching_allocator.h"
#include "stowage/error.h"
#include "tests/allocator/two_streams.h"

namespace stowage {
namespace {

using Addresses = std::vector<std::byte*>;

class PlanningTest : public TwoStreams {
 protected:
  CachingAllocator allocator{device, {.plan_periods = true}};

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

TEST_F(PlanningTest, DoesNothingWhereItIsNotAskedFor) {
  CachingAllocator plain(device);
  for (int i = 0; i < 3; ++i) {
    plain.begin_iteration();
    plain.release_raw(plain.allocate_raw(1_MiB, a));
  }
  EXPECT_EQ(plain.statistics().planned.plans, 0u);
}

TEST_F(PlanningTest, CountsAsAnyOtherBlocks) {
  for (int i = 0; i < 2; ++i) iterate({3_MiB, 1000}, a);
  allocator.begin_iteration();
  std::byte* const block = use(3_MiB, a);
  EXPECT_EQ(allocator.block_bytes(block), 3_MiB);
  AllocatorStatistics all = allocator.statistics();
  EXPECT_EQ(all.planned.allocated, 3_MiB);
  EXPECT_EQ(all.planned.reserved, 4_MiB);
  EXPECT_EQ(all.pools[0].allocated, 3_MiB);
  EXPECT_EQ(all.pools[0].reserved, all.reserved);
  EXPECT_EQ(all.streams[0].allocations, 5u);
  EXPECT_NE(allocator.account().find("4194304 are reserved for plans"), std::string::npos);
  EXPECT_THROW(allocator.retire_stream(a), InvalidInput);
  allocator.release_raw(block);
  EXPECT_EQ(planned().allocated, 0u);
  EXPECT_THROW(allocator.release_raw(block), InvalidInput);
  EXPECT_THROW(allocator.release_raw(block, b), InvalidInput);
  EXPECT_THROW(allocator.record_stream(block, b), InvalidInput);
  EXPECT_THROW(allocator.block_bytes(block), InvalidInput);
  allocator.retire_stream(a);
}

TEST_F(PlanningTest, AnotherSizeIsServedBesideThePlan) {
  for (int i = 0; i < 2; ++i) iterate({3_MiB, 4_MiB, 5_MiB}, a);
  allocator.begin_iteration();
  use(3_MiB, a);
  use(4_MiB + 512, a);
  use(5_MiB, a);
  EXPECT_EQ(planned().hits, 5u);
  EXPECT_EQ(planned().misses, 1u);
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
// (pool_plan_test). Those that are released then, by the time: a request or a release at each.
constexpr int none = -1;
struct Turn {
  Bytes bytes = 0;      // 0: a release
  int released = none;  // which request's
};
constexpr Turn unfit[] = {{12_MiB}, {12_MiB}, {0, 1}, {8_MiB},  {8_MiB}, {0, 0},  {4_MiB}, {6_MiB}, {0, 3},
                          {10_MiB}, {0, 5},   {0, 2}, {12_MiB}, {0, 4},  {6_MiB}, {0, 6},  {0, 8},  {0, 7}};

TEST_F(PlanningTest, APlanWithGapsHoldsNoMoreThanItTouchesAtOnce) {
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
      device.synchronise_lane(a);
    }
  }
  EXPECT_EQ(planned().plans, 1u);
  EXPECT_EQ(planned().hits, 27u);
  EXPECT_EQ(planned().bytes, 30_MiB);
  EXPECT_EQ(allocator.statistics().peak_reserved, 28_MiB);
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

TEST_F(PlanningTest, ARecordedStreamIsWaitedFor) {
  device.is_slow = [] { return true; };
  for (int i = 0; i < 3; ++i) {
    allocator.begin_iteration();
    std::byte* const x = use(2_MiB, a);
    Event event(device);
    simulated->record(event.id(), a);
    simulated->wait(b, event.id());
    allocator.record_stream(x, b);
    write_block(device, b, x, 2_MiB);
    allocator.release_raw(x);
    std::byte* const y = use(2_MiB, a);  // in its place
    EXPECT_EQ(y, x);
    allocator.release_raw(y);
    EXPECT_EQ(device.waits, i + 1u);
  }
  EXPECT_EQ(planned().hits, 4u);
  allocator.begin_iteration();
  std::byte* const x = use(2_MiB, a);
  allocator.record_stream(x, b);
  Event event(device);
  simulated->record(event.id(), a);
  simulated->wait(b, event.id());
  write_block(device, b, x, 2_MiB);
  allocator.release_raw(x);
  device.loses_wait = [] { return true; };
  EXPECT_THROW(use(2_MiB, a), AccessViolation);  // that wait matters
}

TEST_F(PlanningTest, ABlockMayBeReleasedOnAnotherStream) {
  device.is_slow = [] { return true; };
  Event event(device);
  for (int i = 0; i < 3; ++i) {
    allocator.begin_iteration();
    std::byte* const x = use(2_MiB, a);
    simulated->record(event.id(), a);
    simulated->wait(b, event.id());
    write_block(device, b, x, 2_MiB);
    allocator.release_raw(x, b);
    const std::uint64_t waits = device.waits;
    std::byte* const y = use(2_MiB, a);
    EXPECT_EQ(y, x);
    EXPECT_EQ(device.waits, waits + 1);
    allocator.release_raw(y);
  }
  EXPECT_EQ(planned().hits, 4u);
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

TEST_F(PlanningTest, StaysWithinTheLimit) {
  allocator.set_limit(40_MiB);
  for (int i = 0; i < 2; ++i) iterate({10_MiB, 20_MiB}, a);
  EXPECT_EQ(planned().reserved, 30_MiB);
  use(36_MiB, b);  // in the place of the plan
  EXPECT_EQ(allocator.statistics().reserved, 36_MiB);
  EXPECT_EQ(planned().reserved, 0u);
  allocator.begin_iteration();
  use(4_MiB, a);
  EXPECT_THROW(allocator.allocate_raw(10_MiB, a), OutOfMemory);  // as planned, but there is no room
}

TEST_F(PlanningTest, GivesItsMemoryBackWhenAsked) {
  for (int i = 0; i < 2; ++i) iterate({10_MiB, 20_MiB}, a);
  allocator.begin_iteration();
  std::byte* const block = use(10_MiB, a);
  allocator.set_limit(24_MiB);
  EXPECT_EQ(allocator.statistics().reserved, 24_MiB);
  allocator.set_limit(unlimited);
  EXPECT_EQ(allocator.trim(), 14_MiB);
  EXPECT_EQ(planned().reserved, 10_MiB);
  allocator.release_raw(block);
  EXPECT_EQ(allocator.trim(), 10_MiB);
  EXPECT_EQ(simulated->memory_info().free, capacity);
}

TEST_F(PlanningTest, PrivatePoolsAreNoPartOfIt) {
  for (int i = 0; i < 2; ++i) iterate({10_MiB, 20_MiB}, a);
  const PoolId pool = allocator.create_pool();
  {
    const PoolScope scope(allocator, b, pool);
    const DeviceBuffer buffer = allocator.allocate(60_MiB, b);  // of memory that the plan is not using
    EXPECT_EQ(allocator.statistics().pools[1].reserved, 60_MiB);
  }
  EXPECT_EQ(planned().hits, 2u);
  EXPECT_EQ(planned().misses, 0u);
  allocator.destroy_pool(pool);
  iterate({10_MiB, 20_MiB}, a);
  EXPECT_EQ(planned().hits, 4u);
}

TEST_F(PlanningTest, AFailedCallSendsTheRequestToTheCachingPath) {
  device.is_slow = [] { return true; };
  Event event(device);
  const auto iteration = [&] {
    allocator.begin_iteration();
    std::byte* const x = use(2_MiB, a);
    simulated->record(event.id(), a);
    simulated->wait(b, event.id());
    allocator.record_stream(x, b);
    write_block(device, b, x, 2_MiB);
    allocator.release_raw(x);
    allocator.release_raw(use(2_MiB, a));
  };
  for (int i = 0; i < 2; ++i) iteration();
  device.fails = [](const std::string& call) { return call == "wait"; };
  const std::uint64_t hits = planned().hits;
  iteration();
  EXPECT_EQ(planned().misses, 1u);
  device.fails = nullptr;
  iteration();
  EXPECT_EQ(planned().hits, hits + 3);
}

}  // namespace
}  // namespace stowage
