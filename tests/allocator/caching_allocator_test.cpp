#include "stowage/caching_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "stowage/error.h"
#include "tests/allocator/two_streams.h"

namespace stowage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class CachingAllocatorTest : public TwoStreams {
 protected:
  CachingAllocator allocator{device, {.limit = unlimited, .history_entries = 100}};

  Bytes reserved() const { return allocator.statistics().reserved; }
};

TEST_F(CachingAllocatorTest, GivesAlignedBytesThatCanBeUsed) {
  std::set<void*> seen;
  for (const Bytes bytes : {Bytes{1}, Bytes{511}, 512_KiB, 3_MiB + 7, 21_MiB}) {
    void* const block = allocator.allocate_raw(bytes, a);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 512, 0u);
    EXPECT_GE(allocator.block_bytes(block), bytes);
    EXPECT_TRUE(seen.insert(block).second);
    write_block(device, a, block, bytes);
  }
  for (void* const block : seen) allocator.release_raw(block);
}

TEST_F(CachingAllocatorTest, MapsNoMoreThanGranulesForWhatIsLive) {
  void* const block = allocator.allocate_raw(21_MiB, a);
  EXPECT_EQ(reserved(), 22_MiB);
  EXPECT_EQ(simulated->memory_info().free, capacity - 22_MiB);
  EXPECT_EQ(allocator.statistics().maps, 1u);
  allocator.release_raw(block);
  EXPECT_EQ(reserved(), 22_MiB);
}

TEST_F(CachingAllocatorTest, ABufferReleasesItsBlock) {
  DeviceBuffer x = allocator.allocate(1_MiB, a);
  EXPECT_EQ(x.bytes(), 1_MiB);
  EXPECT_EQ(allocator.statistics().pools[0].allocated, 1_MiB);
  DeviceBuffer y = std::move(x);
  x = DeviceBuffer();
  EXPECT_EQ(allocator.statistics().pools[0].allocated, 1_MiB);
  y = DeviceBuffer();
  EXPECT_EQ(allocator.statistics().pools[0].allocated, 0u);
}

TEST_F(CachingAllocatorTest, TheSameStreamTakesWhatItReleasedWithoutADeviceCall) {
  void* const block = allocator.allocate_raw(1_MiB, a);
  write_block(device, a, block, 1_MiB);
  const std::uint64_t calls = simulated->counters().calls;
  for (int i = 0; i < 100; ++i) {
    allocator.release_raw(block);
    ASSERT_EQ(allocator.allocate_raw(1_MiB, a), block);
  }
  // Pieces of it, too.
  allocator.release_raw(block);
  for (int i = 0; i < 4; ++i) allocator.allocate_raw(512_KiB, a);
  EXPECT_EQ(simulated->counters().calls, calls);
  EXPECT_EQ(allocator.statistics().pools[0].hits, 100u);
}

TEST_F(CachingAllocatorTest, AnotherStreamTakesWhatHasPassed) {
  void* const block = allocator.allocate_raw(2_MiB, a);
  write_block(device, a, block, 2_MiB);
  allocator.release_raw(block);
  EXPECT_EQ(allocator.allocate_raw(2_MiB, b), block);
  write_block(device, b, block, 2_MiB);
  EXPECT_EQ(device.waits, 0u);
}

TEST_F(CachingAllocatorTest, AnotherStreamWaitsForWhatHasNotPassed) {
  void* const block = allocator.allocate_raw(2_MiB, a);
  write_block(device, a, block, 2_MiB);
  allocator.release_raw(block);
  device.is_slow = [] { return true; };
  EXPECT_EQ(allocator.allocate_raw(2_MiB, b), block);
  write_block(device, b, block, 2_MiB);  // the simulated device would say if nothing ordered it
  EXPECT_EQ(device.waits, 1u);
  EXPECT_EQ(allocator.statistics().pools[0].waits, 1u);
  EXPECT_EQ(reserved(), 2_MiB);
}

TEST_F(CachingAllocatorTest, AWaitThatIsLostIsSeenByTheSimulatedDevice) {
  void* const block = allocator.allocate_raw(2_MiB, a);
  write_block(device, a, block, 2_MiB);
  allocator.release_raw(block);
  device.is_slow = device.loses_wait = [] { return true; };
  ASSERT_EQ(allocator.allocate_raw(2_MiB, b), block);
  EXPECT_THROW(write_block(device, b, block, 2_MiB), AccessViolation);
}

TEST_F(CachingAllocatorTest, AMarkIsMadeAtTheReleaseWhereOthersHaveAsked) {
  device.is_slow = [] { return true; };
  std::uint64_t records = 0;
  device.fails = [&](const std::string& call) {
    records += call == "record" ? 1u : 0u;
    return false;
  };
  void* const x = allocator.allocate_raw(2_MiB, a);
  void* const y = allocator.allocate_raw(2_MiB, a);
  allocator.release_raw(x);
  EXPECT_EQ(records, 0u);  // nobody else is there
  allocator.allocate_raw(2_MiB, b);
  EXPECT_EQ(records, 1u);
  write_block(device, a, y, 2_MiB);
  allocator.release_raw(y);
  EXPECT_EQ(records, 2u);
  allocator.release_raw(allocator.allocate_raw(2_MiB, a));
  EXPECT_EQ(records, 2u);  // nobody has asked since
  device.fails = nullptr;  // it counts here
}

TEST_F(CachingAllocatorTest, ARecordedStreamIsWaitedFor) {
  device.is_slow = [] { return true; };
  void* const block = allocator.allocate_raw(2_MiB, a);
  allocator.record_stream(block, b);
  allocator.record_stream(block, b);
  write_block(device, b, block, 2_MiB);
  allocator.release_raw(block);
  EXPECT_EQ(allocator.allocate_raw(2_MiB, a), block);
  write_block(device, a, block, 2_MiB);
  EXPECT_EQ(device.waits, 1u);
}

TEST_F(CachingAllocatorTest, ABlockMayBeReleasedOnAnotherStream) {
  Event event(device);
  void* const block = allocator.allocate_raw(2_MiB, a);
  write_block(device, a, block, 2_MiB);
  simulated->record(event.id(), a);
  simulated->wait(b, event.id());
  write_block(device, b, block, 2_MiB);
  allocator.release_raw(block, b);
  EXPECT_EQ(allocator.allocate_raw(2_MiB, b), block);
  write_block(device, b, block, 2_MiB);
  EXPECT_EQ(device.waits + device.queries, 0u);
  const AllocatorStatistics all = allocator.statistics();
  ASSERT_EQ(all.streams.size(), 2u);
  EXPECT_EQ(all.streams[0].allocated, 0u);
  EXPECT_EQ(all.streams[1].allocated, 2_MiB);
}

TEST_F(CachingAllocatorTest, RefusesMisuse) {
  EXPECT_THROW(allocator.allocate_raw(0, a), InvalidInput);
  EXPECT_THROW(allocator.allocate_raw(1, 1 << 20), InvalidInput);
  auto* const block = static_cast<std::byte*>(allocator.allocate_raw(1_MiB, a));
  int local = 0;
  for (void* const wrong : {static_cast<void*>(&local), static_cast<void*>(block + 512),
                            static_cast<void*>(block + 1), static_cast<void*>(nullptr)}) {
    EXPECT_THROW(allocator.release_raw(wrong), InvalidInput);
    EXPECT_THROW(allocator.release_raw(wrong, b), InvalidInput);
    EXPECT_THROW(allocator.record_stream(wrong, b), InvalidInput);
    EXPECT_THROW(allocator.block_bytes(wrong), InvalidInput);
  }
  EXPECT_THROW(allocator.retire_stream(a), InvalidInput);
  allocator.release_raw(block);
  EXPECT_THROW(allocator.release_raw(block), InvalidInput);
  EXPECT_THROW(allocator.release_raw(block, b), InvalidInput);
  EXPECT_THROW(allocator.record_stream(block, b), InvalidInput);
  EXPECT_THROW(allocator.destroy_pool(default_pool), InvalidInput);
  EXPECT_THROW(allocator.destroy_pool(7), InvalidInput);
}

TEST_F(CachingAllocatorTest, FailsWithTheWholeAccount) {
  void* const block = allocator.allocate_raw(40_MiB, a);
  for (const Bytes bytes : {25_MiB, capacity + 1, unlimited, unlimited - 100}) {
    try {
      allocator.allocate_raw(bytes, b);
      FAIL() << "there are no " << bytes << " bytes";
    } catch (const OutOfMemory& error) {
      EXPECT_EQ(error.requested_bytes(), bytes);
      EXPECT_EQ(error.free_bytes(), capacity - 40_MiB);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("41943040 reserved"),
                                      HasSubstr("stream 0: 41943040 allocated"), HasSubstr("ask for less")));
    }
  }
  EXPECT_EQ(allocator.statistics().out_of_memory, 4u);
  void* const other = allocator.allocate_raw(24_MiB, b);
  allocator.release_raw(other);
  allocator.release_raw(block);
}

TEST_F(CachingAllocatorTest, AsksObserversBeforeItFails) {
  DeviceBuffer victim = allocator.allocate(40_MiB, a);
  std::vector<std::uint32_t> asked;
  const ObserverId helper = allocator.add_observer([&](const OutOfMemoryNotice& notice) {
    EXPECT_EQ(notice.requested, victim.data() != nullptr ? 30_MiB : 40_MiB);
    EXPECT_THAT(notice.account,
                HasSubstr(victim.data() != nullptr ? "41943040 allocated" : "31457280 allocated"));
    asked.push_back(notice.times_asked);
    if (asked.size() == 3) victim = DeviceBuffer();
    return true;
  });
  const DeviceBuffer wanted = allocator.allocate(30_MiB, b);
  EXPECT_EQ(asked, (std::vector<std::uint32_t>{0, 1, 2}));
  EXPECT_THROW(allocator.allocate_raw(40_MiB, b), OutOfMemory);
  EXPECT_EQ(asked.size(), 3u + 8u);
  allocator.remove_observer(helper);
  EXPECT_THROW(allocator.allocate_raw(40_MiB, b), OutOfMemory);
  EXPECT_EQ(asked.size(), 3u + 8u);
}

TEST_F(CachingAllocatorTest, TrimGivesBackWhatNoBlockTouches) {
  void* const kept = allocator.allocate_raw(3_MiB, a);
  void* const block = allocator.allocate_raw(30_MiB, a);
  write_block(device, a, block, 30_MiB);
  allocator.release_raw(block);
  EXPECT_EQ(allocator.trim(), 30_MiB);  // 33 MiB in 17 granules, of which 2 are touched
  EXPECT_EQ(reserved(), 4_MiB);
  EXPECT_EQ(simulated->memory_info().free, capacity - reserved());
  allocator.release_raw(kept);
  allocator.trim();
  EXPECT_EQ(reserved(), 0u);
}

TEST_F(CachingAllocatorTest, KeepsItsLimit) {
  allocator.set_limit(17_MiB);
  void* const block = allocator.allocate_raw(10_MiB, a);
  EXPECT_THROW(allocator.allocate_raw(7_MiB, a), OutOfMemory);  // the limit is 8 granules
  void* const other = allocator.allocate_raw(6_MiB, b);
  EXPECT_EQ(reserved(), 16_MiB);
  allocator.release_raw(other);
  allocator.set_limit(12_MiB);
  EXPECT_EQ(reserved(), 12_MiB);
  allocator.set_limit(4_MiB);
  EXPECT_EQ(reserved(), 10_MiB);
  EXPECT_THROW(allocator.allocate_raw(1, b), OutOfMemory);
  allocator.release_raw(block);
  EXPECT_EQ(allocator.allocate_raw(10_MiB, a), block);  // cached is cached
  allocator.release_raw(block);
  allocator.set_limit(unlimited);
  EXPECT_NO_THROW(allocator.release_raw(allocator.allocate_raw(capacity, b)));
}

TEST_F(CachingAllocatorTest, ALaneMayGoOnceItsStreamIsRetired) {
  {
    const Lane passing(device, LaneRole::compute);
    void* const block = allocator.allocate_raw(4_MiB, passing.id());
    void* const shared = allocator.allocate_raw(4_MiB, a);
    allocator.record_stream(shared, passing.id());
    write_block(device, passing.id(), block, 4_MiB);
    write_block(device, passing.id(), shared, 4_MiB);
    allocator.release_raw(block);
    device.is_slow = [] { return true; };
    allocator.retire_stream(passing.id());
    allocator.release_raw(shared);
    allocator.retire_stream(passing.id());
  }
  EXPECT_EQ(allocator.statistics().streams[0].allocated, 0u);
  void* const all = allocator.allocate_raw(8_MiB, b);
  EXPECT_EQ(reserved(), 8_MiB);
  write_block(device, b, all, 8_MiB);
  const Lane next(device, LaneRole::compute);  // with the id of the one that went
  allocator.release_raw(allocator.allocate_raw(1_MiB, next.id()));
}

TEST_F(CachingAllocatorTest, CountsByStreamAndPool) {
  void* const x = allocator.allocate_raw(1000, a);
  void* const y = allocator.allocate_raw(2_MiB, a);
  void* const z = allocator.allocate_raw(3_MiB, b);
  allocator.release_raw(y);
  AllocatorStatistics all = allocator.statistics();
  ASSERT_EQ(all.streams.size(), 2u);
  EXPECT_EQ(all.streams[0].stream, a);
  EXPECT_EQ(all.streams[0].allocated, 1024u);
  EXPECT_EQ(all.streams[0].requested, 1000u);
  EXPECT_EQ(all.streams[0].peak_allocated, 2_MiB + 1024);
  EXPECT_EQ(all.streams[0].cached, 2_MiB);
  EXPECT_EQ(all.streams[0].allocations, 2u);
  EXPECT_EQ(all.streams[0].releases, 1u);
  EXPECT_EQ(all.streams[1].allocated, 3_MiB);
  EXPECT_EQ(all.pools[0].allocated, 3_MiB + 1024);
  EXPECT_EQ(all.pools[0].peak_allocated, 5_MiB + 1024);
  EXPECT_EQ(all.pools[0].allocations, 3u);
  EXPECT_EQ(all.peak_reserved, all.reserved);
  allocator.release_raw(x);
  allocator.release_raw(z);
  allocator.trim();
  allocator.reset_peaks();
  all = allocator.statistics();
  EXPECT_EQ(all.peak_reserved, 0u);
  EXPECT_EQ(all.pools[0].peak_reserved, 0u);
  EXPECT_EQ(all.pools[0].peak_allocated, 0u);
  EXPECT_EQ(all.streams[0].peak_allocated, 0u);
  EXPECT_EQ(all.pools[0].allocations, 3u);
}

TEST_F(CachingAllocatorTest, FragmentationIsTheFreeShareOutsideOfTheLargestPart) {
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(allocator.allocate_raw(2_MiB, a));
  EXPECT_EQ(allocator.statistics().pools[0].fragmentation, 0.0);
  for (const int i : {1, 2, 3, 5}) allocator.release_raw(blocks[static_cast<std::size_t>(i)]);
  allocator.release_raw(allocator.allocate_raw(512, b));  // whatever is cached goes to the heap
  const PoolStatistics pool = allocator.statistics().pools[0];
  EXPECT_GE(pool.largest_free, 4_MiB);
  EXPECT_NEAR(
      pool.fragmentation,
      1 - static_cast<double>(pool.largest_free) / static_cast<double>(pool.reserved - pool.allocated),
      1e-12);
  EXPECT_GT(pool.fragmentation, 0.2);
}

TEST_F(CachingAllocatorTest, WritesItsHistory) {
  void* const block = allocator.allocate_raw(3000, b);
  allocator.release_raw(block);
  const auto history = nlohmann::json::parse(allocator.history_json());
  EXPECT_EQ(history["version"], 1);
  EXPECT_EQ(history["dropped"], 0);
  std::vector<std::string> what;
  for (const auto& event : history["events"]) what.push_back(event["what"]);
  EXPECT_EQ(what, (std::vector<std::string>{"map", "allocate", "release"}));
  EXPECT_EQ(history["events"][1]["address"], reinterpret_cast<std::uintptr_t>(block));
  EXPECT_EQ(history["events"][1]["bytes"], 3072);
  EXPECT_EQ(history["events"][1]["stream"], b);
  EXPECT_THAT(allocator.history_text(), HasSubstr("allocate"));
}

TEST_F(CachingAllocatorTest, ADeviceWithoutVirtualMemoryIsRefused) {
  device.fails = [](const std::string& call) { return call == "reserve"; };
  EXPECT_THROW(CachingAllocator{device}, DeviceError);
}

// Sequences that grow by moving to larger blocks, and blocks that stay, among short ones.
TEST_F(CachingAllocatorTest, MapsLittleMoreThanWasEverLive) {
  const auto large = open_simulated_device({.capacity = 16_GiB,
                                            .executor = Executor::virtual_time,
                                            .poison = Poison::none,
                                            .check_accesses = false});
  const Lane lane(*large, LaneRole::compute);
  CachingAllocator tight(*large);
  std::mt19937 random(1);
  Bytes live = 0, peak = 0;
  const auto ask = [&](Bytes bytes) {
    peak = std::max(peak, live += bytes);
    return tight.allocate(bytes, lane.id());
  };
  const auto drop = [&](DeviceBuffer& buffer) {
    live -= buffer.bytes();
    buffer = DeviceBuffer();
  };
  std::vector<DeviceBuffer> staying, sequences(12);
  for (int step = 0; step < 1500; ++step) {
    std::vector<DeviceBuffer> work;
    for (int k = 0; k < 4; ++k) work.push_back(ask(1 + random() % 30_MiB));
    DeviceBuffer& sequence = sequences[random() % sequences.size()];
    DeviceBuffer longer =
        ask(sequence.bytes() > 150_MiB ? 1_MiB : 1_MiB + sequence.bytes() + random() % 8_MiB);
    drop(sequence);
    sequence = std::move(longer);
    if (step % 25 == 0) staying.push_back(ask(1 + random() % 4_MiB));
    for (DeviceBuffer& buffer : work) drop(buffer);
  }
  EXPECT_LE(tight.statistics().peak_reserved, peak + peak / 20);
}

TEST_F(CachingAllocatorTest, GivesEverythingBackWhenItDies) {
  {
    CachingAllocator passing(device);
    void* const block = passing.allocate_raw(20_MiB, a);
    write_block(device, a, block, 20_MiB);
    passing.release_raw(block);
  }
  EXPECT_EQ(simulated->memory_info().free, capacity);
}

}  // namespace
}  // namespace stowage
