#include "src/device/simulated/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "stowage/error.h"

namespace stowage::simulated {
namespace {

using testing::AllOf;
using testing::HasSubstr;

bool poisoned(const std::byte* at) { return std::memcmp(at, &poison_word, sizeof poison_word) == 0; }

TEST(Memory, CapacityIsHardAndCountedToTheByte) {
  Memory memory(1000, unlimited, Poison::full);
  memory.allocate(MemoryKind::device, 999);
  EXPECT_EQ(memory.device_info().free, 1u);
  EXPECT_THROW(memory.allocate(MemoryKind::device, 2), OutOfMemory);
  memory.allocate(MemoryKind::device, 1);
  EXPECT_EQ(memory.device_info().free, 0u);
  EXPECT_THROW(memory.allocate(MemoryKind::device, 1), OutOfMemory);
}

TEST(Memory, PinnedBytesHaveTheirOwnCapacity) {
  Memory memory(1000, 500, Poison::full);
  Allocation& held = memory.allocate(MemoryKind::pinned, 500);
  EXPECT_THROW(memory.allocate(MemoryKind::pinned, 1), OutOfMemory);
  memory.allocate(MemoryKind::device, 1000);
  memory.release(held);
  memory.allocate(MemoryKind::pinned, 500);
}

TEST(Memory, CapacityMayBeUnlimited) {
  Memory memory(unlimited, unlimited, Poison::none);
  memory.allocate(MemoryKind::device, 64_MiB);
  EXPECT_EQ(memory.device_info().total, unlimited);
  EXPECT_EQ(memory.device_info().free, unlimited - 64_MiB);
  EXPECT_THROW(memory.allocate(MemoryKind::device, Bytes{1} << 60), OutOfMemory);  // more than any host has
}

TEST(Memory, RunningOutSaysWhoHoldsWhat) {
  Memory memory(Memory::granularity + 1000, 500, Poison::full);
  memory.allocate(MemoryKind::device, 100);
  memory.allocate(MemoryKind::device, 600);
  memory.allocate(MemoryKind::pinned, 300);
  Allocation& range = memory.reserve(4 * Memory::granularity);
  memory.map(range, 0, Memory::granularity);
  try {
    memory.allocate(MemoryKind::device, 301);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), 301u);
    EXPECT_EQ(error.free_bytes(), 300u);
    EXPECT_THAT(
        error.what(),
        AllOf(HasSubstr("301 bytes"), HasSubstr("300 free of a limit of 66536"),
              HasSubstr("66236 bytes of device memory in 3 allocations"),
              HasSubstr("the largest 65536 in virtual range 4, 600 in allocation 2, 100 in allocation 1"),
              HasSubstr("300 bytes of pinned memory"), HasSubstr("Release some")));
  }
}

TEST(Memory, FreshDeviceBytesArePoisonedAndPinnedOnesZero) {
  Memory memory(unlimited, unlimited, Poison::full);
  const Allocation& device = memory.allocate(MemoryKind::device, 4096);
  const Allocation& pinned = memory.allocate(MemoryKind::pinned, 4096);
  for (Bytes i = 0; i < 4096; i += 8) ASSERT_TRUE(poisoned(device.base + i)) << i;
  for (Bytes i = 0; i < 4096; ++i) ASSERT_EQ(pinned.base[i], std::byte{0}) << i;
}

TEST(Memory, FreedDeviceBytesArePoisoned) {
  Memory memory(unlimited, unlimited, Poison::full);
  Allocation& allocation = memory.allocate(MemoryKind::device, 4096);
  const std::byte* const base = allocation.base;
  std::memset(allocation.base, 1, 4096);
  memory.release(allocation);
  for (Bytes i = 0; i < 4096; i += 8) ASSERT_TRUE(poisoned(base + i)) << i;
  EXPECT_NE(memory.allocate(MemoryKind::device, 4096).base, base);  // not reused while it may be stale
}

TEST(Memory, FindsTheAllocationThatHoldsAnAddress) {
  Memory memory(unlimited, unlimited, Poison::none);
  Allocation& a = memory.allocate(MemoryKind::device, 5000);
  Allocation& b = memory.allocate(MemoryKind::pinned, 10);
  EXPECT_EQ(memory.find(a.base), &a);
  EXPECT_EQ(memory.find(a.base + 4999), &a);
  EXPECT_NE(memory.find(a.base + 5000), &a);
  EXPECT_EQ(memory.find(b.base + 9), &b);
  EXPECT_EQ(memory.find(b.base + 10), nullptr);
  EXPECT_EQ(memory.find(nullptr), nullptr);
}

TEST(Memory, MappingCountsAndAReservationDoesNot) {
  constexpr Bytes granule = Memory::granularity;
  Memory memory(3 * granule, unlimited, Poison::full);
  Allocation& range = memory.reserve(100 * granule);
  EXPECT_EQ(memory.device_info().free, 3 * granule);
  memory.map(range, 10 * granule, 2 * granule);
  EXPECT_EQ(memory.device_info().free, granule);
  EXPECT_THROW(memory.map(range, 0, 2 * granule), OutOfMemory);
  EXPECT_TRUE(poisoned(range.base + 10 * granule));
  EXPECT_TRUE(Memory::is_mapped(range, 10 * granule, 12 * granule));
  EXPECT_FALSE(Memory::is_mapped(range, 10 * granule, 12 * granule + 1));
  EXPECT_FALSE(Memory::is_mapped(range, 10 * granule - 1, 11 * granule));
  range.base[10 * granule] = std::byte{1};
  memory.unmap(range, 10 * granule, granule);
  memory.map(range, 10 * granule, granule);
  EXPECT_TRUE(poisoned(range.base + 10 * granule));  // the old contents are gone
  memory.release(range);
  EXPECT_EQ(memory.device_info().free, 3 * granule);
}

TEST(MemoryDeathTest, UnmappedBytesFault) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  Memory memory(unlimited, unlimited, Poison::full);
  Allocation& range = memory.reserve(Memory::granularity);
  EXPECT_DEATH(*static_cast<volatile std::byte*>(range.base) = std::byte{1}, "");
}

}  // namespace
}  // namespace stowage::simulated
