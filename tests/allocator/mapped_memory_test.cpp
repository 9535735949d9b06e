#include "allocator/mapped_memory.h"

#include <gtest/gtest.h>

#include "stowage/error.h"
#include "stowage/simulated_device.h"
#include "tests/allocator/device_decorator.h"

namespace stowage::caching {
namespace {

using Runs = std::vector<Interval>;

class MappedMemoryTest : public testing::Test {
 protected:
  std::unique_ptr<SimulatedDevice> simulated =
      open_simulated_device({.capacity = 64_MiB, .executor = Executor::virtual_time});
  DeviceDecorator device{*simulated};
  History history{16};
  MappedMemory memory{device, 1_GiB, 16_MiB, history};  // 8 granules
  Pool pool{default_pool, 0, Interval{0, 512_MiB}, memory.granule()};
  std::exception_ptr failure;

  bool map(const Runs& runs) { return memory.map(pool.heap, pool, runs, failure); }
};

TEST_F(MappedMemoryTest, CountsToThePoolAndAgainstTheLimit) {
  EXPECT_EQ(memory.room(), 8u);
  EXPECT_TRUE(map({{0, 3}, {10, 12}}));
  EXPECT_EQ(memory.mapped(), 5u);
  EXPECT_EQ(memory.room(), 3u);
  EXPECT_EQ(pool.reserved, 5u);
  EXPECT_EQ(pool.heap.spare().count(), 5u);
  EXPECT_EQ(memory.unmap_spare(pool, 2), 2u);
  EXPECT_EQ(pool.heap.mapped(), (Runs{{0, 3 * memory.granule()}})) << "from the highest address down";
  EXPECT_EQ(pool.reserved, 3u);
  EXPECT_EQ(pool.peak_reserved, 5u);
  EXPECT_EQ(memory.peak_mapped(), 5u);
  memory.reset_peak();
  EXPECT_EQ(memory.peak_mapped(), 3u);
}

TEST_F(MappedMemoryTest, KeepsWhatIsToBeKept) {
  ASSERT_TRUE(map({{0, 3}}));
  EXPECT_EQ(memory.unmap_spare(pool, 9, {1, 3}), 1u);
  EXPECT_EQ(memory.mapped(), 2u);
}

TEST_F(MappedMemoryTest, ALimitBelowWhatIsMappedLeavesNoRoom) {
  ASSERT_TRUE(map({{0, 5}}));
  EXPECT_EQ(memory.beyond_limit(), 0u);
  memory.set_limit(3 * memory.granule());
  EXPECT_EQ(memory.room(), 0u);
  EXPECT_EQ(memory.beyond_limit(), 2u);
}

TEST_F(MappedMemoryTest, ADeviceThatHasLessThanTheLimitIsNoFailure) {
  memory.set_limit(1_GiB);
  EXPECT_FALSE(map({{0, 1}, {4, 60}}));  // 57 granules of 32
  EXPECT_EQ(failure, nullptr);
  EXPECT_EQ(memory.mapped(), 0u);
  EXPECT_EQ(pool.reserved, 0u);
  EXPECT_EQ(pool.heap.spare().count(), 0u);
}

TEST_F(MappedMemoryTest, WhatTheDeviceDoesNotTakeBackStays) {
  ASSERT_TRUE(map({{0, 2}}));
  device.fails = [](const std::string& call) { return call == "unmap"; };
  EXPECT_EQ(memory.unmap_spare(pool, 2), 0u);
  EXPECT_EQ(memory.mapped(), 2u);
  EXPECT_EQ(pool.reserved, 2u);
  EXPECT_EQ(pool.heap.spare().count(), 2u);
}

TEST_F(MappedMemoryTest, WritesTheHistory) {
  ASSERT_TRUE(map({{3, 5}}));
  memory.unmap_spare(pool, 2);
  std::vector<HistoryEvent> events;
  EXPECT_EQ(history.copy(events), 0u);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, EventKind::map);
  EXPECT_EQ(events[1].kind, EventKind::unmap);
  for (const HistoryEvent& event : events) {
    EXPECT_EQ(event.address, reinterpret_cast<std::uintptr_t>(memory.base()) + 3 * memory.granule());
    EXPECT_EQ(event.bytes, 2 * memory.granule());
  }
}

}  // namespace
}  // namespace stowage::caching
