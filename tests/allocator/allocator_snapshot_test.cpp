#include "stowage/allocator_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "stowage/error.h"
#include "tests/allocator/two_streams.h"

namespace stowage {
namespace {

class AllocatorSnapshotTest : public TwoStreams {
 protected:
  CachingAllocator allocator{device, {.history_entries = 100}};
};

const SnapshotBlock* find(const AllocatorSnapshot& snapshot, const void* address) {
  for (const SnapshotSegment& segment : snapshot.segments)
    for (const SnapshotBlock& block : segment.blocks)
      if (block.address == reinterpret_cast<std::uintptr_t>(address)) return &block;
  return nullptr;
}

void expect_tiles(const AllocatorSnapshot& snapshot) {
  Bytes reserved = 0, live = 0, requested = 0, cached = 0;
  for (const SnapshotSegment& segment : snapshot.segments) {
    std::uintptr_t at = segment.address;
    for (const SnapshotBlock& block : segment.blocks) {
      EXPECT_EQ(block.address, at);
      at += block.bytes;
      live += block.live ? block.bytes : 0;
      cached += block.cached ? block.bytes : 0;
      requested += block.requested;
    }
    EXPECT_EQ(at, segment.address + segment.bytes);
    reserved += segment.bytes;
  }
  Bytes allocated = 0, asked = 0, in_caches = 0;
  for (const PoolStatistics& pool : snapshot.statistics.pools) {
    allocated += pool.allocated;
    asked += pool.requested;
    in_caches += pool.cached;
  }
  EXPECT_EQ(reserved, snapshot.statistics.reserved);
  EXPECT_EQ(live, allocated);
  EXPECT_EQ(requested, asked);
  EXPECT_EQ(cached, in_caches);
}

TEST_F(AllocatorSnapshotTest, IsEmptyAtFirst) {
  const AllocatorSnapshot snapshot = allocator.snapshot();
  EXPECT_TRUE(snapshot.segments.empty());
  EXPECT_TRUE(snapshot.events.empty());
}

TEST_F(AllocatorSnapshotTest, HasWhatAPlanServes) {
  CachingAllocator planned{device, {.plan_periods = true}};
  void* kept = nullptr;
  for (int iteration = 0; iteration < 6; ++iteration) {
    planned.begin_iteration();
    void* const first = planned.allocate_raw(3_MiB, a);
    void* const second = planned.allocate_raw(5_MiB, a);
    expect_tiles(planned.snapshot());
    planned.release_raw(first);
    expect_tiles(planned.snapshot());
    kept = second;
    const AllocatorSnapshot snapshot = planned.snapshot();
    const SnapshotBlock* const found = find(snapshot, kept);
    ASSERT_TRUE(found != nullptr && found->live);
    EXPECT_EQ(found->requested, 5_MiB);
    planned.release_raw(second);
  }
  EXPECT_GT(planned.statistics().planned.hits, 0u) << "a plan served the last iterations";
}

TEST_F(AllocatorSnapshotTest, TellsBlocksApart) {
  void* const live = allocator.allocate_raw(3000, a);
  void* const large = allocator.allocate_raw(9_MiB, b);
  void* const cached = allocator.allocate_raw(5000, b);
  allocator.release_raw(cached);
  const AllocatorSnapshot snapshot = allocator.snapshot();
  expect_tiles(snapshot);
  const SnapshotBlock *one = find(snapshot, live), *two = find(snapshot, large),
                      *three = find(snapshot, cached);
  ASSERT_TRUE(one != nullptr && two != nullptr && three != nullptr);
  EXPECT_TRUE(one->live && two->live && three->cached && !three->live);
  EXPECT_EQ(one->requested, 3000u);
  EXPECT_EQ(one->bytes, 3072u);
  EXPECT_EQ(one->stream, a);
  EXPECT_EQ(three->stream, b);
  ASSERT_EQ(snapshot.segments.size(), 2u);
  EXPECT_TRUE(snapshot.segments[0].small);
  EXPECT_FALSE(snapshot.segments[1].small);
  EXPECT_EQ(snapshot.events.size(), 6u);  // two maps, three requests, one release
  EXPECT_GT(snapshot.events[0].microseconds, 0);
}

// A block between two that were released and given back leaves a segment that begins inside a gap.
TEST_F(AllocatorSnapshotTest, SegmentsBeginAndEndInsideGaps) {
  std::vector<void*> blocks;
  for (int i = 0; i < 5; ++i) blocks.push_back(allocator.allocate_raw(5_MiB, a));
  for (const std::size_t i : {0u, 1u, 3u}) allocator.release_raw(blocks[i]);
  EXPECT_GT(allocator.trim(), 0u);
  expect_tiles(allocator.snapshot());
  allocator.release_raw(blocks[2]);
  allocator.release_raw(blocks[4]);
  expect_tiles(allocator.snapshot());
}

TEST_F(AllocatorSnapshotTest, PrivatePoolsAreToldApart) {
  const PoolId pool = allocator.create_pool();
  void* const outside = allocator.allocate_raw(100, a);
  void* inside = nullptr;
  {
    const PoolScope scope(allocator, a, pool);
    inside = allocator.allocate_raw(100, a);
  }
  const AllocatorSnapshot snapshot = allocator.snapshot();
  expect_tiles(snapshot);
  ASSERT_EQ(snapshot.segments.size(), 2u);
  EXPECT_EQ(snapshot.segments[0].pool, default_pool);
  EXPECT_EQ(snapshot.segments[1].pool, pool);
  EXPECT_EQ(snapshot.segments[1].address, reinterpret_cast<std::uintptr_t>(inside));
  allocator.release_raw(outside);
}

TEST_F(AllocatorSnapshotTest, AgreesWithItselfWhileOthersAllocate) {
  const auto real = open_simulated_device({.capacity = 128_MiB});
  const Lane one(*real, LaneRole::compute), two(*real, LaneRole::compute);
  CachingAllocator shared(*real);
  std::atomic<int> done = 0;
  const auto work = [&](LaneId stream) {
    for (unsigned i = 0; i < 3000; ++i) {
      void* const first = shared.allocate_raw(1000 + 777 * (i % 50), stream);
      void* const second = shared.allocate_raw(3_MiB, stream);
      shared.release_raw(first);
      shared.release_raw(second);
    }
    ++done;
  };
  std::thread left(work, one.id()), right(work, two.id());
  while (done < 2) expect_tiles(shared.snapshot());
  left.join();
  right.join();
}

TEST_F(AllocatorSnapshotTest, WritesJson) {
  void* const block = allocator.allocate_raw(3000, b);
  const auto all = nlohmann::json::parse(
      snapshot_json({{2, allocator.snapshot(), [](LaneId lane) { return std::uint64_t{lane} + 100; }}}));
  EXPECT_EQ(all["version"], 1);
  const auto& one = all["devices"][0];
  EXPECT_EQ(one["device"], 2);
  EXPECT_EQ(one["reserved"], 2_MiB);
  const auto& found = one["segments"][0]["blocks"][0];
  EXPECT_EQ(found["address"], reinterpret_cast<std::uintptr_t>(block));
  EXPECT_EQ(found["state"], "live");
  EXPECT_EQ(found["stream"], b + 100);
  EXPECT_EQ(one["events"][1]["what"], "allocate");
}

TEST_F(AllocatorSnapshotTest, DevicesHaveReasonableNumbers) {
  EXPECT_THROW(snapshot_pickle({{-1, {}}}), InvalidInput);
  EXPECT_THROW(snapshot_pickle({{1024, {}}}), InvalidInput);
  EXPECT_EQ(snapshot_pickle({}).substr(0, 2), "\x80\x02");
}

TEST_F(AllocatorSnapshotTest, KnowsItsOwnAddresses) {
  const auto* const block = static_cast<const std::byte*>(allocator.allocate_raw(100, a));
  int foreign = 0;
  EXPECT_TRUE(allocator.owns(block));
  EXPECT_TRUE(allocator.owns(block + 700));
  EXPECT_FALSE(allocator.owns(&foreign));
  EXPECT_FALSE(allocator.owns(nullptr));
}

}  // namespace
}  // namespace stowage
