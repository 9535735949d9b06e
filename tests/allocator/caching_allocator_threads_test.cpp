// Several threads on one caching allocator: each with streams of its own, and blocks that go from one to
// another.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "stowage/caching_allocator.h"
#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace stowage {
namespace {

class CachingAllocatorThreads : public testing::Test {
 protected:
  static constexpr int threads = 4;
  std::unique_ptr<SimulatedDevice> device =
      open_simulated_device({.capacity = 256_MiB, .poison = Poison::none});
  std::vector<Lane> lanes;
  CachingAllocator allocator{*device, {.limit = unlimited, .history_entries = 64}};
  std::mutex mutex;
  std::vector<void*> handed_over;  // from thread to thread

  void SetUp() override {
    for (int i = 0; i < threads; ++i) lanes.emplace_back(*device, LaneRole::compute);
  }

  void work(int index, int steps) {
    std::mt19937 random(static_cast<unsigned>(index));
    const LaneId lane = lanes[static_cast<std::size_t>(index)].id();
    std::vector<void*> live;
    for (int i = 0; i < steps; ++i) {
      if (random() % 2 == 0 || live.empty()) {
        live.push_back(allocator.allocate_raw(4 + random() % (random() % 8 == 0 ? 4_MiB : 64_KiB), lane));
        *static_cast<unsigned*>(live.back()) = 1;  // its pages are there
      } else {
        std::swap(live[random() % live.size()], live.back());
        if (random() % 8 == 0) {
          const std::lock_guard<std::mutex> lock(mutex);
          handed_over.push_back(live.back());
        } else {
          if (random() % 8 == 0) allocator.record_stream(live.back(), lanes[random() % threads].id());
          allocator.release_raw(live.back());
        }
        live.pop_back();
      }
      if (random() % 16 == 0) release_handed_over();
      if (random() % 512 == 0) allocator.trim();
      if (random() % 128 == 0) {
        EXPECT_EQ(allocator.statistics().pools.size(), 1u);
        EXPECT_FALSE(allocator.history_json().empty());
      }
      while (live.size() > 64) allocator.release_raw(live.back()), live.pop_back();
    }
    for (void* const block : live) allocator.release_raw(block);
  }
  void release_handed_over() {
    const std::lock_guard<std::mutex> lock(mutex);
    for (void* const block : handed_over) allocator.release_raw(block);
    handed_over.clear();
  }
};

TEST_F(CachingAllocatorThreads, NothingIsLostAmongThreads) {
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i) running.emplace_back([this, i] { work(i, 1500); });
  for (std::thread& thread : running) thread.join();
  release_handed_over();
  const AllocatorStatistics all = allocator.statistics();
  EXPECT_EQ(all.pools[0].allocated, 0u);
  std::uint64_t allocations = 0, releases = 0;
  for (const StreamStatistics& stream : all.streams) {
    allocations += stream.allocations;
    releases += stream.releases;
  }
  EXPECT_EQ(allocations, releases);
  allocator.trim();
  EXPECT_EQ(allocator.statistics().reserved, 0u);
  EXPECT_EQ(device->memory_info().free, 256_MiB);
}

TEST_F(CachingAllocatorThreads, OneStreamServesSeveralThreads) {
  std::vector<std::thread> running;
  std::atomic<int> wrong{0};
  for (int i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      for (int k = 0; k < 2000; ++k) {
        auto* const block = static_cast<int*>(allocator.allocate_raw(4096, lanes[0].id()));
        *block = i;
        std::this_thread::yield();
        if (*block != i) ++wrong;
        allocator.release_raw(block);
      }
    });
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(allocator.statistics().reserved, 2_MiB);
}

// Iterations of several threads mix differently each time, so that plans serve some of it and miss some.
TEST_F(CachingAllocatorThreads, PlansServeSeveralThreads) {
  CachingAllocator planning(*device, {.plan_periods = true});
  std::vector<std::thread> running;
  std::atomic<int> wrong{0};
  for (int i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      const LaneId lane = lanes[static_cast<std::size_t>(i)].id();
      for (int k = 0; k < 300; ++k) {
        if (i == 0) planning.begin_iteration();
        std::vector<int*> blocks;
        for (Bytes bytes = 4096; bytes < 2_MiB; bytes *= 3) {
          blocks.push_back(static_cast<int*>(planning.allocate_raw(bytes, lane)));
          *blocks.back() = i;
        }
        planning.record_stream(blocks[0], lanes[0].id());
        for (int* const block : blocks) {
          if (*block != i) ++wrong;
          planning.release_raw(block);
        }
        if (k % 64 == 0) planning.trim();
      }
    });
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(planning.statistics().planned.plans, 0u);
  EXPECT_EQ(planning.statistics().pools[0].allocated, 0u);
  planning.trim();
  EXPECT_EQ(planning.statistics().reserved, 0u);
}

TEST_F(CachingAllocatorThreads, PoolsComeAndGoBesideRequests) {
  std::vector<std::thread> running;
  for (int i = 0; i < threads; ++i)
    running.emplace_back([&, i] {
      const LaneId lane = lanes[static_cast<std::size_t>(i)].id();
      for (int k = 0; k < 30; ++k) {
        const PoolId pool = allocator.create_pool();
        {
          const PoolScope scope(allocator, lane, pool);
          const DeviceBuffer buffer = allocator.allocate(3_MiB, lane);
        }
        const DeviceBuffer beside = allocator.allocate(3_MiB, lane);
        allocator.destroy_pool(pool);
      }
    });
  for (std::thread& thread : running) thread.join();
  EXPECT_EQ(allocator.statistics().pools.size(), 1u);
  EXPECT_LE(allocator.statistics().reserved, threads * 4_MiB);
}

}  // namespace
}  // namespace stowage
