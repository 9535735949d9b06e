// Several threads on one caching allocator: each with streams of its own, and blocks that go from one to
// another.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
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

// A request that fails while an observer runs. It waits there until `go_on`.
class ObserverThreads : public CachingAllocatorThreads {
 protected:
  std::atomic<bool> runs{false}, go_on{false}, ended{false};
  std::thread requester;

  void TearDown() override {
    go_on = true;
    if (requester.joinable()) requester.join();
  }
  ObserverId add_waiting_observer() {
    return allocator.add_observer([this](const OutOfMemoryNotice&) {
      runs = true;
      while (!go_on) std::this_thread::yield();
      ended = true;
      return false;
    });
  }
  void fail_in_another_thread() {
    requester = std::thread([this] { fail(); });
    while (!runs) std::this_thread::yield();
  }
  void fail(std::size_t lane = 0) {
    EXPECT_THROW(allocator.allocate_raw(512_MiB, lanes[lane].id()), OutOfMemory);
  }
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }
};

TEST_F(ObserverThreads, AnObserverThatRunsIsWaitedForByItsRemoval) {
  const ObserverId observer = add_waiting_observer();
  fail_in_another_thread();
  std::atomic<bool> removed{false};
  std::thread remover([&] {
    allocator.remove_observer(observer);
    EXPECT_TRUE(ended);
    removed = true;
  });
  std::thread second([&] {
    allocator.remove_observer(observer);
    EXPECT_TRUE(ended);
  });
  pause();
  EXPECT_FALSE(removed);
  go_on = true;
  remover.join();
  second.join();
}

TEST_F(ObserverThreads, AnObserverThatIsRemovedWhileTheOneBeforeItRunsDoesNotBegin) {
  add_waiting_observer();
  std::atomic<bool> began{false};
  const ObserverId later = allocator.add_observer([&](const OutOfMemoryNotice&) { return began = true; });
  fail_in_another_thread();
  allocator.remove_observer(later);
  go_on = true;
  requester.join();
  EXPECT_FALSE(began);
}

TEST_F(ObserverThreads, AnObserverRemovesItself) {
  int asked = 0;
  auto held = std::make_shared<DeviceBuffer>(allocator, 1_MiB, lanes[0].id());
  const std::weak_ptr<DeviceBuffer> memory = held;
  ObserverId self = 0;
  self = allocator.add_observer([&, held = std::move(held)](const OutOfMemoryNotice&) {
    ++asked;
    allocator.remove_observer(self);
    return held->data() != nullptr;
  });
  fail();
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(memory.expired());  // released without a lock
}

TEST_F(ObserverThreads, ObserversThatRemoveEachOtherEnd) {
  ObserverId ids[2] = {};
  std::atomic<int> inside{0};
  for (int i = 0; i < 2; ++i)
    ids[i] = allocator.add_observer([&, i](const OutOfMemoryNotice& notice) {
      if (notice.stream != lanes[static_cast<std::size_t>(i)].id()) return false;
      ++inside;
      while (inside < 2) std::this_thread::yield();
      allocator.remove_observer(ids[1 - i]);
      return false;
    });
  std::thread other([this] { fail(1); });
  fail(0);
  other.join();
  EXPECT_EQ(inside, 2);
}

TEST_F(ObserverThreads, AnObserverThatThrowsCanBeRemoved) {
  const ObserverId observer =
      allocator.add_observer([](const OutOfMemoryNotice&) -> bool { throw InvalidInput("observer"); });
  EXPECT_THROW(allocator.allocate_raw(512_MiB, lanes[0].id()), InvalidInput);
  allocator.remove_observer(observer);
  fail();
  EXPECT_THROW(allocator.add_observer(nullptr), InvalidInput);
}

}  // namespace
}  // namespace stowage
