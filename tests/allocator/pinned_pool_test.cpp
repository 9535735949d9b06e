#include "allocator/pinned_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace stowage {
namespace {

class PinnedPoolTest : public testing::Test {
 protected:
  std::unique_ptr<SimulatedDevice> device =
      open_simulated_device({.host_capacity = 1000, .executor = Executor::virtual_time});
  PinnedPool pool{*device};
};

TEST_F(PinnedPoolTest, TakesExactSizes) {
  const PinnedBuffer a = pool.allocate(513), b = pool.allocate(487);  // together all there is
  EXPECT_EQ(a.bytes(), 513u);
  EXPECT_EQ(b.bytes(), 487u);
  EXPECT_NE(a.data(), b.data());
  EXPECT_EQ(pool.statistics().in_use_bytes, 1000u);
  EXPECT_EQ(pool.statistics().in_use, 2u);
}

TEST_F(PinnedPoolTest, ReusesAReturnedBufferOfTheSameSizeOnly) {
  const std::byte* first = nullptr;
  {
    const PinnedBuffer a = pool.allocate(300);
    first = a.data();
  }
  const PinnedBuffer smaller = pool.allocate(299);
  EXPECT_NE(smaller.data(), first);
  const PinnedBuffer same = pool.allocate(300);
  EXPECT_EQ(same.data(), first);
  EXPECT_EQ(device->counters().pinned_allocations, 2u);
  EXPECT_EQ(pool.statistics().allocations, 2u);
  EXPECT_EQ(pool.statistics().reuses, 1u);
}

TEST_F(PinnedPoolTest, CountsWhatIsInUseAndCached) {
  { const PinnedBuffer a = pool.allocate(100), b = pool.allocate(200); }
  const PinnedBuffer c = pool.allocate(100);
  const PinnedPoolStatistics statistics = pool.statistics();
  EXPECT_EQ(statistics.in_use, 1u);
  EXPECT_EQ(statistics.in_use_bytes, 100u);
  EXPECT_EQ(statistics.cached, 1u);
  EXPECT_EQ(statistics.cached_bytes, 200u);
  EXPECT_EQ(statistics.peak_bytes, 300u);
}

TEST_F(PinnedPoolTest, TrimGivesTheCacheBackToTheDevice) {
  const PinnedBuffer kept = pool.allocate(100);
  { const PinnedBuffer returned = pool.allocate(800); }
  EXPECT_THROW(DeviceMemory(*device, MemoryKind::pinned, 900), OutOfMemory);
  pool.trim();
  EXPECT_EQ(pool.statistics().cached, 0u);
  EXPECT_EQ(pool.statistics().cached_bytes, 0u);
  EXPECT_EQ(DeviceMemory(*device, MemoryKind::pinned, 900).bytes(), 900u);
}

TEST_F(PinnedPoolTest, GivesUpItsCacheBeforeARequestFails) {
  { const PinnedBuffer a = pool.allocate(400), b = pool.allocate(500); }
  const PinnedBuffer large = pool.allocate(1000);
  EXPECT_EQ(large.bytes(), 1000u);
  EXPECT_EQ(pool.statistics().cached_bytes, 0u);
}

TEST_F(PinnedPoolTest, FailsWithATypedErrorAndGoesOn) {
  const PinnedBuffer held = pool.allocate(600);
  try {
    const PinnedBuffer more = pool.allocate(401);
    FAIL() << "more than the capacity was allocated";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), 401u);
    EXPECT_EQ(error.free_bytes(), 400u);
  }
  EXPECT_EQ(pool.allocate(400).bytes(), 400u);
  EXPECT_EQ(pool.statistics().in_use, 1u);
}

TEST_F(PinnedPoolTest, RefusesZeroBytes) { EXPECT_THROW(pool.allocate(0), InvalidInput); }

TEST_F(PinnedPoolTest, BuffersMoveAndGoBackOnce) {
  PinnedBuffer a = pool.allocate(100);
  PinnedBuffer b(std::move(a));
  a = std::move(b);
  EXPECT_EQ(pool.statistics().in_use, 1u);
  a = pool.allocate(200);
  EXPECT_EQ(pool.statistics().in_use_bytes, 200u);
  a = {};
  EXPECT_EQ(pool.statistics().in_use, 0u);
  EXPECT_EQ(pool.statistics().cached, 2u);
}

TEST_F(PinnedPoolTest, ServesSeveralThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([this, t] {
      for (int i = 0; i < 200; ++i) {
        const PinnedBuffer buffer = pool.allocate(static_cast<Bytes>(10 + (i + t) % 3));
        std::memset(buffer.data(), t, buffer.bytes());
      }
    });
  for (std::thread& thread : threads) thread.join();
  const PinnedPoolStatistics statistics = pool.statistics();
  EXPECT_EQ(statistics.in_use, 0u);
  EXPECT_EQ(statistics.allocations + statistics.reuses, 800u);
  EXPECT_EQ(statistics.cached, statistics.allocations);
  EXPECT_LE(statistics.allocations, 12u);  // four in use of three sizes
}

}  // namespace
}  // namespace stowage
