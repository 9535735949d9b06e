// Rungs behind a stream's own cache: what must be found before a request may fail.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "stowage/caching_allocator.h"
#include "stowage/error.h"
#include "tests/allocator/two_streams.h"

namespace stowage {
namespace {

class LadderTest : public TwoStreams {
 protected:
  CachingAllocator allocator{device};

  std::byte* use(Bytes bytes, LaneId lane) {
    void* const block = allocator.allocate_raw(bytes, lane);
    write_block(device, lane, block, bytes);
    return static_cast<std::byte*>(block);
  }
};

TEST_F(LadderTest, ABlockPendingOnAnotherStreamServesBeforeMemoryRunsOut) {
  device.is_slow = [] { return true; };
  allocator.release_raw(use(capacity, a));
  use(capacity, b);
  EXPECT_EQ(device.waits, 1u);
}

TEST_F(LadderTest, PiecesPendingOnSeveralStreamsServeTogether) {
  device.is_slow = [] { return true; };
  std::byte* const x = use(capacity / 2, a);
  std::byte* const y = use(capacity / 2, b);
  allocator.release_raw(x);
  allocator.release_raw(y);
  const Lane third(device, LaneRole::compute);
  use(capacity, third.id());
  EXPECT_EQ(device.waits, 2u);
}

TEST_F(LadderTest, MemoryStrandedInOneStreamsCacheServesOthers) {
  std::vector<void*> blocks;
  for (int i = 0; i < 640; ++i) blocks.push_back(use(100_KiB, a));  // 62.5 MiB
  for (void* const block : blocks) allocator.release_raw(block);
  use(61_MiB, b);
}

TEST_F(LadderTest, WhatAStreamCachesIsPutTogetherBeforeGranulesAreTaken) {
  std::byte* const x = use(6_MiB, a);
  std::byte* const y = use(6_MiB, a);
  std::byte* const z = use(14_MiB, a);
  allocator.release_raw(z);
  use(512, b);  // z goes from the cache to the heap
  allocator.release_raw(x);
  allocator.release_raw(y);
  EXPECT_EQ(use(12_MiB, a), x);  // in the place of both, not in that of z and beyond
}

TEST_F(LadderTest, FragmentsServeAfterRemapping) {
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(use(2_MiB, a));
  for (std::size_t i = 0; i < 32; i += 2) allocator.release_raw(blocks[i]);
  // Half of it is free, nowhere more than 2 MiB in one piece.
  use(32_MiB, a);
  EXPECT_EQ(allocator.statistics().reserved, capacity);
  EXPECT_EQ(device.unmaps, 16u);
  EXPECT_THROW(allocator.allocate_raw(512, a), OutOfMemory);
}

// Each of them would else hold the rest of its granule for good.
TEST_F(LadderTest, SliversHoldOneGranuleAmongThem) {
  for (const bool sliver_first : {true, false}) {
    std::vector<void*> slivers, blocks;
    for (int i = 0; i < 28; ++i) {
      if (sliver_first) slivers.push_back(allocator.allocate_raw(4_KiB, a));
      blocks.push_back(allocator.allocate_raw(2_MiB - 4_KiB, a));
      if (!sliver_first) slivers.push_back(allocator.allocate_raw(4_KiB, a));
    }
    for (void* const block : blocks) allocator.release_raw(block);
    allocator.release_raw(allocator.allocate_raw(56_MiB, a));
    EXPECT_EQ(allocator.statistics().reserved, 58_MiB);
    for (void* const sliver : slivers) allocator.release_raw(sliver);
    allocator.trim();
  }
}

TEST_F(LadderTest, ATinyRequestFindsRoomAnywhereWithoutAWaitOnceMemoryIsFull) {
  use(capacity - 3_MiB - 4_KiB, a);
  use(3_MiB, a);
  EXPECT_EQ(allocator.statistics().reserved, capacity);
  use(4_KiB, a);
  EXPECT_EQ(allocator.statistics().pools.front().retries, 0u);
  EXPECT_THROW(allocator.allocate_raw(512, a), OutOfMemory);
}

TEST_F(LadderTest, BlocksInTurnLeaveNoHoles) {
  std::mt19937 random(1);
  std::vector<std::pair<void*, Bytes>> live;
  Bytes bytes = 0, most = 0;
  for (int i = 0; i < 5000; ++i) {
    const Bytes size = 64_KiB + random() % (960_KiB - 64_KiB);
    live.emplace_back(allocator.allocate_raw(size, a), size);
    most = std::max(most, bytes += size);
    if (live.size() <= 90) continue;
    bytes -= live.front().second;
    allocator.release_raw(live.front().first);
    live.erase(live.begin());
  }
  EXPECT_LE(allocator.statistics().peak_reserved, align_up(most, 2_MiB) + 2_MiB);
}

TEST_F(LadderTest, TheWholeLimitServesAfterFragmentation) {
  allocator.set_limit(48_MiB);
  std::vector<std::byte*> blocks;
  for (int i = 0; blocks.size() < 300; ++i) try {
      blocks.push_back(use(static_cast<Bytes>(1 + i * 7919 % 400) * 1024, i % 2 == 0 ? a : b));
    } catch (const OutOfMemory&) {
      break;
    }
  for (std::size_t i = 0; i < blocks.size(); i += 3) allocator.release_raw(blocks[i]), blocks[i] = nullptr;
  std::byte* const small = use(500_KiB, a);  // takes what it finds among them
  for (std::byte* const block : blocks)
    if (block != nullptr) allocator.release_raw(block);
  device.is_slow = [] { return true; };
  std::byte* const large = use(46_MiB, b);  // all but the granule of the block that lives
  EXPECT_EQ(allocator.statistics().reserved, 48_MiB);
  EXPECT_THROW(allocator.allocate_raw(2_MiB, a), OutOfMemory);
  allocator.release_raw(small);
  allocator.release_raw(large);
  use(48_MiB, a);
}

TEST_F(LadderTest, ALargeRequestDoesNotSplitASmallOnesSegment) {
  void* const small = use(1000, a);
  void* const large = use(30_MiB, a);
  EXPECT_EQ(allocator.statistics().reserved, 32_MiB);
  allocator.release_raw(large);
  allocator.trim();
  EXPECT_EQ(allocator.statistics().reserved, 2_MiB);  // the small one holds nothing of the large one's
  void* const other = use(1000, a);
  EXPECT_EQ(allocator.statistics().reserved, 2_MiB);
  allocator.release_raw(small);
  allocator.release_raw(other);
}

TEST_F(LadderTest, SmallRequestsServeFromTheLastGranules) {
  std::vector<void*> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(use(2_MiB - 512, a));
  // Nothing is left but 512 bytes beside or behind each.
  EXPECT_NO_THROW(use(512, b));
}

class TwoRuns : public LadderTest {
 protected:
  // Free addresses of 18 MiB in one piece, of which the middle third alone is mapped.
  void SetUp() override {
    std::byte* const x = use(6_MiB, a);
    std::byte* const y = use(6_MiB, a);
    std::byte* const z = use(6_MiB, a);
    use(2_MiB, a);
    allocator.release_raw(x);
    allocator.release_raw(z);
    allocator.trim();
    allocator.release_raw(y);
    first = x;
  }
  std::byte* first = nullptr;
};

TEST_F(TwoRuns, AMapThatFailsHalfWayIsUndone) {
  int maps = 0;
  device.fails = [&](const std::string& call) { return call == "map" && ++maps % 2 == 0; };
  EXPECT_THROW(allocator.allocate_raw(18_MiB, a), OutOfMemory);
  EXPECT_GE(maps, 2);
  EXPECT_EQ(allocator.statistics().reserved, 8_MiB);
  EXPECT_EQ(simulated->memory_info().free, capacity - 8_MiB);
  device.fails = nullptr;
  EXPECT_EQ(use(18_MiB, a), first);
}

TEST_F(TwoRuns, WhatCannotBeUndoneIsKeptForLater) {
  int maps = 0;
  device.fails = [&](const std::string& call) { return call == "unmap" || (call == "map" && ++maps == 2); };
  EXPECT_EQ(use(18_MiB, a), first);  // its second try takes what the first one left
  device.fails = nullptr;
  EXPECT_EQ(maps, 3);
  EXPECT_EQ(allocator.statistics().reserved, 20_MiB);
  EXPECT_EQ(simulated->memory_info().free, capacity - 20_MiB);
}

TEST_F(LadderTest, MemoryThatOthersTookLeavesTheLimitOutOfReach) {
  DeviceMemory others(*simulated, MemoryKind::device, 30_MiB);
  std::byte* const x = use(20_MiB, a);
  EXPECT_THROW(allocator.allocate_raw(20_MiB, b), OutOfMemory);
  allocator.release_raw(x);
  use(34_MiB, b);  // by moving what is cached, though the limit alone would let it grow
  EXPECT_EQ(allocator.statistics().reserved, 34_MiB);
}

TEST_F(LadderTest, SearchesAgainWhenWorkHasPassed) {
  // Two streams hold half of the device each, in pieces that alternate.
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 32; ++i) blocks.push_back(use(2_MiB, i % 2 == 0 ? a : b));
  for (std::size_t i = 0; i < 32; i += 4)
    allocator.release_raw(blocks[i]), allocator.release_raw(blocks[i + 1]);
  device.is_slow = [] { return true; };
  use(32_MiB, b);  // granules cannot move before their work is known to be done: it is waited for
  EXPECT_GE(allocator.statistics().pools[0].retries, 1u);
  EXPECT_EQ(allocator.statistics().reserved, capacity);
}

TEST_F(LadderTest, WhatAStreamInACaptureReleasedIsPassedBy) {
  allocator.release_raw(use(3_MiB, a));
  const PoolId pool = allocator.create_pool();
  const PoolScope scope(allocator, a, pool);
  device.is_slow = [] { return true; };
  use(3_MiB, b);  // in the same gap, behind it
  EXPECT_EQ(device.waits, 0u);
  EXPECT_EQ(allocator.statistics().reserved, 6_MiB);
}

TEST_F(LadderTest, WaitsThatFailArePassedBy) {
  device.is_slow = [] { return true; };
  allocator.release_raw(use(2_MiB, a));
  device.fails = [](const std::string& call) { return call == "wait" || call == "synchronise"; };
  use(2_MiB, b);
  EXPECT_EQ(allocator.statistics().reserved, 4_MiB);
}

TEST_F(LadderTest, AFailedDeviceCallIsNotTakenForALackOfMemory) {
  allocator.release_raw(use(2_MiB, a));
  device.fails = [](const std::string& call) { return call != "map"; };
  EXPECT_THROW(allocator.allocate_raw(capacity, b), DeviceError);
  device.fails = nullptr;
  use(capacity, b);
}

TEST_F(LadderTest, AStreamInACaptureWaitsForNoOther) {
  allocator.release_raw(use(3_MiB, b));
  device.is_slow = [] { return true; };
  device.captures = [&](LaneId lane) { return lane == a; };
  use(3_MiB, a);
  EXPECT_EQ(device.waits, 0u);
  EXPECT_EQ(allocator.statistics().reserved, 6_MiB);
  device.captures = nullptr;
  use(3_MiB, a);  // once the capture has ended it waits again
  EXPECT_EQ(device.waits, 1u);
}

TEST_F(LadderTest, AStreamInACaptureThatAskedForNothingIsLeftAlone) {
  allocator.release_raw(use(3_MiB, a));
  device.captures = [&](LaneId lane) { return lane == a; };
  use(3_MiB, b);
  EXPECT_EQ(device.waits, 0u);
  EXPECT_EQ(allocator.statistics().reserved, 6_MiB);
  device.captures = nullptr;
  allocator.trim();
  EXPECT_EQ(allocator.statistics().reserved, 4_MiB);  // what it released is free by now
}

TEST_F(LadderTest, AHitDoesNotWaitForMemoryToBeMapped) {
  void* const block = use(1_MiB, a);
  void* hit = nullptr;
  device.fails = [&](const std::string& call) {
    if (call == "map")
      std::thread([&] {
        allocator.release_raw(block);
        hit = allocator.allocate_raw(1_MiB, a);
      }).join();
    return false;
  };
  use(8_MiB, b);
  EXPECT_EQ(hit, block);
}

// Requests fail only where the bytes that blocks hold leave no room, under a limit that was set below what is
// mapped.
TEST_F(LadderTest, ALimitBelowWhatIsMappedLeavesRoomForWhatFits) {
  const auto plain = open_simulated_device(
      {.capacity = capacity, .executor = Executor::virtual_time, .poison = Poison::none});
  const Lane one_lane(*plain, LaneRole::compute), other_lane(*plain, LaneRole::compute);
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    std::mt19937_64 draw(seed);
    const auto below = [&](std::uint64_t end) { return draw() % end; };
    CachingAllocator one{*plain};
    const Bytes each = (1 + below(6)) * 1_MiB, limit = (8 + below(20)) * 2_MiB;
    std::vector<void*> blocks;
    while ((blocks.size() + 1) * each <= capacity - 8_MiB)
      blocks.push_back(one.allocate_raw(each, one_lane.id()));
    std::vector<void*> kept;
    for (std::size_t i = 0; i < blocks.size(); ++i)
      if (below(3) == 0 && (kept.size() + 1) * (each + 4_MiB) < limit)
        kept.push_back(std::exchange(blocks[i], nullptr));
    const auto release = [&](std::size_t first) {
      for (std::size_t i = first; i < blocks.size(); i += 2)
        if (blocks[i] != nullptr) one.release_raw(blocks[i]);
    };
    release(0);
    one.set_limit(limit);
    release(1);
    // Each block that is kept holds its granules, a part of one at either end.
    const Bytes held = kept.size() * (align_up(each, 2_MiB) + 2_MiB);
    const Bytes left = (limit - std::min(limit, held)) / 2_MiB * 2_MiB;
    if (left > 0) {
      const std::uint64_t maps = one.statistics().maps;
      void* const block = one.allocate_raw(left, other_lane.id());
      if (one.statistics().maps > maps) {
        EXPECT_LE(one.statistics().reserved, limit) << "seed " << seed;
      }
      one.release_raw(block);
    }
    for (void* const block : kept) one.release_raw(block);
  }
}

}  // namespace
}  // namespace stowage
