// Private pools of the caching allocator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "stowage/caching_allocator.h"
#include "stowage/error.h"
#include "tests/allocator/two_streams.h"

namespace stowage {
namespace {

class PrivatePoolsTest : public TwoStreams {
 protected:
  CachingAllocator allocator{device};

  Bytes reserved() const { return allocator.statistics().reserved; }
};

TEST_F(PrivatePoolsTest, APrivatePoolKeepsItsMemoryToItself) {
  const PoolId pool = allocator.create_pool();
  void* captured = nullptr;
  {
    const PoolScope scope(allocator, a, pool);
    captured = allocator.allocate_raw(8_MiB, a);
    write_block(device, a, captured, 8_MiB);
    allocator.release_raw(captured);
    EXPECT_EQ(allocator.allocate_raw(8_MiB, a), captured);
    allocator.release_raw(captured);
    EXPECT_THROW(allocator.destroy_pool(pool), InvalidInput);
    void* const beside = allocator.allocate_raw(8_MiB, b);  // not routed
    EXPECT_NE(beside, captured);
    allocator.release_raw(beside);
    EXPECT_EQ(device.queries, 0u);  // nothing that a capture forbids
  }
  EXPECT_EQ(allocator.trim(), 8_MiB);
  EXPECT_THROW(allocator.allocate_raw(60_MiB, a), OutOfMemory);  // the pool's 8 MiB are out of reach
  {
    const PoolScope scope(allocator, a, pool);
    EXPECT_EQ(allocator.allocate_raw(8_MiB, a), captured);
  }
  EXPECT_THROW(allocator.destroy_pool(pool), InvalidInput);
  allocator.release_raw(captured);
  const AllocatorStatistics all = allocator.statistics();
  ASSERT_EQ(all.pools.size(), 2u);
  EXPECT_EQ(all.pools[1].reserved, 8_MiB);
  EXPECT_EQ(all.pools[1].hits, 2u);
  allocator.destroy_pool(pool);
  EXPECT_EQ(reserved(), 0u);
  allocator.release_raw(allocator.allocate_raw(60_MiB, a));
}

TEST_F(PrivatePoolsTest, APrivatePoolIsServedFromTheDefaultPoolsCache) {
  allocator.release_raw(allocator.allocate_raw(capacity, a));
  const PoolId pool = allocator.create_pool();
  const PoolScope scope(allocator, b, pool);
  const DeviceBuffer buffer = allocator.allocate(40_MiB, b);
  const AllocatorStatistics all = allocator.statistics();
  EXPECT_EQ(all.pools[1].reserved, 40_MiB);
  EXPECT_EQ(all.reserved, capacity);
}

TEST_F(PrivatePoolsTest, PrivatePoolsComeAndGo) {
  for (int round = 0; round < 3; ++round) {
    std::vector<PoolId> pools;
    for (int i = 0; i < 8; ++i) pools.push_back(allocator.create_pool());
    EXPECT_THROW(allocator.create_pool(), InvalidInput);
    for (const PoolId pool : pools) {
      const PoolScope scope(allocator, a, pool);
      allocator.release_raw(allocator.allocate_raw(4_MiB, a));
    }
    for (const PoolId pool : pools) allocator.destroy_pool(pool);
    EXPECT_EQ(reserved(), 0u);
  }
}

TEST_F(PrivatePoolsTest, AScopeWhosePoolIsGoneEndsInTheDefaultPool) {
  const PoolId outer = allocator.create_pool(), inner = allocator.create_pool();
  {
    const PoolScope scope(allocator, a, outer);
    {
      const PoolScope nested(allocator, a, inner);
      allocator.destroy_pool(outer);  // no request goes to it
    }
    allocator.release_raw(allocator.allocate_raw(4_MiB, a));
    EXPECT_EQ(allocator.statistics().pools[0].allocations, 1u);
    allocator.destroy_pool(inner);
  }
  allocator.release_raw(allocator.allocate_raw(4_MiB, a));
  EXPECT_EQ(allocator.statistics().pools[0].allocations, 2u);
}

TEST_F(PrivatePoolsTest, AScopeWhoseStreamIsRetiredDoesNothingAtItsEnd) {
  const PoolId pool = allocator.create_pool();
  std::size_t streams = 0;
  {
    const Lane passing(device, LaneRole::compute);
    const PoolScope scope(allocator, passing.id(), pool);
    allocator.retire_stream(passing.id());
    streams = allocator.statistics().streams.size();
  }
  EXPECT_EQ(allocator.statistics().streams.size(), streams);  // the lane is none of them again
}

TEST_F(PrivatePoolsTest, AScopeRefusesAPoolAndAStreamThatAreNone) {
  EXPECT_THROW(PoolScope(allocator, a, 7), InvalidInput);
  EXPECT_THROW(PoolScope(allocator, 1U << 20U, default_pool), InvalidInput);
  EXPECT_THROW(allocator.destroy_pool(7), InvalidInput);
  EXPECT_THROW(allocator.destroy_pool(default_pool), InvalidInput);
}

}  // namespace
}  // namespace stowage
