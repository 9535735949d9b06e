// Rungs behind a stream's own cache: what must be found before a request may fail.
#include <gtest/gtest.h>

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

TEST_F(LadderTest, AMapThatFailsHalfWayIsUndone) {
  std::byte* const held = use(2_MiB, a);
  int maps = 0;
  device.fails = [&](const std::string& call) { return call == "map" && ++maps >= 2; };
  EXPECT_THROW(allocator.allocate_raw(50_MiB, a), OutOfMemory);
  EXPECT_GE(maps, 2);
  EXPECT_EQ(allocator.statistics().reserved, 2_MiB);
  EXPECT_EQ(simulated->memory_info().free, capacity - 2_MiB);
  write_block(device, a, held, 2_MiB);
  device.fails = nullptr;
  use(50_MiB, a);
}

TEST_F(LadderTest, WhatCannotBeUndoneIsKeptForLater) {
  int maps = 0;
  device.fails = [&](const std::string& call) { return call == "unmap" || (call == "map" && ++maps == 2); };
  use(50_MiB, a);  // its second try takes what the first one left
  device.fails = nullptr;
  EXPECT_EQ(allocator.statistics().reserved, 50_MiB);
  EXPECT_EQ(simulated->memory_info().free, capacity - 50_MiB);
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

}  // namespace
}  // namespace stowage
