#include "stowage/stream_memory.h"

#include <gtest/gtest.h>

#include "stowage/error.h"
#include "stowage/simulated_device.h"
#include "tests/allocator/adopting_device.h"

namespace stowage {
namespace {

class StreamMemoryTest : public testing::Test {
 protected:
  static constexpr Bytes capacity = 64_MiB;
  std::unique_ptr<SimulatedDevice> simulated =
      open_simulated_device({.capacity = capacity, .executor = Executor::virtual_time});
  AdoptingDevice device{*simulated};
  CachingAllocator allocator{device};
  StreamMemory memory{device, allocator};
  void* const a = reinterpret_cast<void*>(0x100);
  void* const b = reinterpret_cast<void*>(0x200);
  void write(void* stream, void* address, Bytes bytes) {
    write_block(device, device.adopted.at(stream), address, bytes);
  }
  void SetUp() override {
    device.is_slow = [] { return true; };
  }
};

TEST_F(StreamMemoryTest, KeepsTheOrderOfStreams) {
  void* const first = memory.allocate(capacity, 256, a);
  write(a, first, capacity);
  memory.release(first, a);
  void* const second = memory.allocate(capacity, 256, b);
  write(b, second, capacity);  // the device would see that nothing orders it behind a's
  EXPECT_GE(device.waits, 1u);
  memory.release(second, b);
}

TEST_F(StreamMemoryTest, WhatIsForAllWaitsForWhoUsedIt) {
  memory.release(memory.allocate(1, 1, b), b);  // its lane is there from now on
  void* const first = memory.allocate(capacity, 256, a);
  write(a, first, capacity);
  memory.release(first, a);
  void* const all = memory.allocate_for_all(capacity, 256);
  EXPECT_EQ(all, first);
  write(b, all, capacity);  // at once, ordered by the host alone
  device.synchronise_lane(device.adopted.at(b));
  memory.release_unused(all);
}

TEST_F(StreamMemoryTest, MixesBothKinds) {
  void* const for_all = memory.allocate_for_all(1_MiB, 512);
  void* const ordered = memory.allocate(1_MiB, 512, a);
  write(a, for_all, 1_MiB);
  write(a, ordered, 1_MiB);
  memory.release(for_all, a);
  device.synchronise_lane(device.adopted.at(a));
  memory.release_unused(ordered);
  EXPECT_EQ(allocator.statistics().pools[0].allocated, 0u);
  void* const again = memory.allocate_for_all(1_MiB, 512);
  EXPECT_TRUE(again == ordered || again == for_all);
  memory.release_unused(again);
}

TEST_F(StreamMemoryTest, NothingIsNull) {
  EXPECT_EQ(memory.allocate(0, 1, a), nullptr);
  EXPECT_EQ(memory.allocate_for_all(0, 1), nullptr);
  memory.release(nullptr, a);
  memory.release_unused(nullptr);
}

TEST_F(StreamMemoryTest, RefusesAlignmentsThatNoBlockHas) {
  for (const std::size_t alignment : {std::size_t{0}, std::size_t{3}, std::size_t{1024}}) {
    EXPECT_THROW(memory.allocate(1, alignment, a), InvalidInput);
    EXPECT_THROW(memory.allocate_for_all(1, alignment), InvalidInput);
  }
  memory.release(memory.allocate(1, 512, a), a);
}

TEST_F(StreamMemoryTest, AFailedWaitKeepsNothing) {
  device.fails = [](const std::string& call) { return call == "map"; };
  EXPECT_THROW(memory.allocate_for_all(1_MiB, 512), OutOfMemory);
  EXPECT_EQ(allocator.statistics().pools[0].allocated, 0u);
}

TEST_F(StreamMemoryTest, ForgetsStreams) {
  void* const block = memory.allocate(1_MiB, 512, a);
  EXPECT_THROW(memory.forget_stream(a), InvalidInput);
  memory.release(block, a);
  memory.forget_stream(a);
  memory.forget_stream(b);
  EXPECT_EQ(memory.allocate(1_MiB, 512, a), block);
  memory.release(block, a);
}

TEST_F(StreamMemoryTest, LeavesTheAllocatorInOrder) {
  {
    StreamMemory brief(device, allocator);
    brief.release(brief.allocate(capacity, 512, b), b);
    brief.release_unused(brief.allocate_for_all(capacity, 512));
  }
  void* const block = memory.allocate(capacity, 512, a);
  write(a, block, capacity);
  memory.release(block, a);
}

}  // namespace
}  // namespace stowage
