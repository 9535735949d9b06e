#include "stowage/host_memory_resource.h"

#include <gtest/gtest.h>

#include <limits>
#include <list>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "stowage/error.h"
#include "stowage/simulated_device.h"

namespace stowage {
namespace {

class HostMemoryResourceTest : public testing::Test {
 protected:
  std::unique_ptr<SimulatedDevice> device =
      open_simulated_device({.host_capacity = 1_MiB, .executor = Executor::virtual_time});
  HostMemoryResource resource{*device};
};

TEST_F(HostMemoryResourceTest, HoldsContainers) {
  {
    std::pmr::vector<int> numbers(&resource);
    for (int i = 0; i < 10000; ++i) numbers.push_back(i);
    EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), 0), 49995000);
    std::pmr::list<std::pmr::string> words(&resource);  // its strings have the resource too
    for (int i = 0; i < 10; ++i) words.emplace_back(100, 'x');
    EXPECT_EQ(words.back().get_allocator().resource(), &resource);
    EXPECT_GT(resource.statistics().in_use, 41000u);
  }
  EXPECT_EQ(resource.statistics().in_use, 0u);
  EXPECT_GT(resource.statistics().cached, 0u);
  resource.trim();
  EXPECT_EQ(resource.statistics().cached, 0u);
}

TEST_F(HostMemoryResourceTest, IsPinned) {
  std::pmr::vector<float> numbers({1, 2, 3}, &resource);
  const DeviceMemory memory(*device, MemoryKind::device, sizeof(float) * 3);
  const Lane in(*device, LaneRole::h2d), out(*device, LaneRole::d2h);
  device->copy(in.id(), memory.data(), numbers.data(), sizeof(float) * 3, "in");  // refuses pageable memory
  device->synchronise_lane(in.id());
  std::pmr::vector<float> back(3, &resource);
  device->copy(out.id(), back.data(), memory.data(), sizeof(float) * 3, "out");
  device->synchronise_lane(out.id());
  EXPECT_EQ(back, numbers);
}

TEST_F(HostMemoryResourceTest, UsesSizesAgain) {
  void* const first = resource.allocate(5000);
  resource.deallocate(first, 5000);
  EXPECT_EQ(resource.allocate(5000), first);
  EXPECT_EQ(resource.statistics().reuses, 1u);
  EXPECT_EQ(resource.statistics().allocations, 1u);
  resource.deallocate(first, 5000);
}

TEST_F(HostMemoryResourceTest, AlignsAsAsked) {
  for (const std::size_t alignment : {1u, 8u, 256u, 4096u, 65536u}) {
    void* const memory = resource.allocate(100, alignment);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % alignment, 0u);
    resource.deallocate(memory, 100, alignment);
  }
  EXPECT_THROW(static_cast<void>(resource.allocate(100, 24)), InvalidInput);
}

TEST_F(HostMemoryResourceTest, NoBytesHaveAnAddressToo) {
  void* const one = resource.allocate(0);
  void* const two = resource.allocate(0);
  EXPECT_NE(one, nullptr);
  EXPECT_NE(one, two);
  resource.deallocate(one, 0);
  resource.deallocate(two, 0);
}

TEST_F(HostMemoryResourceTest, EndsWhereMemoryEnds) {
  EXPECT_THROW(static_cast<void>(resource.allocate(2_MiB)), OutOfMemory);
  EXPECT_THROW(static_cast<void>(resource.allocate(std::numeric_limits<std::size_t>::max(), 4096)),
               OutOfMemory);
  std::pmr::vector<std::byte> bytes(&resource);
  EXPECT_THROW(bytes.resize(2_MiB), OutOfMemory);
  EXPECT_EQ(resource.statistics().in_use, 0u);
}

TEST_F(HostMemoryResourceTest, RefusesWhatItDidNotGive) {
  int foreign = 0;
  EXPECT_THROW(resource.deallocate(&foreign, 4), InvalidInput);
  void* const memory = resource.allocate(100);
  resource.deallocate(memory, 100);
  EXPECT_THROW(resource.deallocate(memory, 100), InvalidInput);
}

TEST_F(HostMemoryResourceTest, IsEqualToItselfAlone) {
  const HostMemoryResource other(*device);
  EXPECT_TRUE(resource.is_equal(resource));
  EXPECT_FALSE(resource.is_equal(other));
}

TEST_F(HostMemoryResourceTest, GivesUpWhatDidNotComeBack) {
  {
    HostMemoryResource brief(*device);
    static_cast<void>(brief.allocate(900_KiB));
  }
  resource.deallocate(resource.allocate(900_KiB), 900_KiB);
}

TEST_F(HostMemoryResourceTest, ThreadsShareIt) {
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number)
    threads.emplace_back([&, number] {
      for (int round = 0; round < 200; ++round) {
        std::pmr::vector<int> numbers(static_cast<std::size_t>(10 + round % 7), number, &resource);
        for (const int value : numbers) ASSERT_EQ(value, number);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(resource.statistics().in_use, 0u);
}

}  // namespace
}  // namespace stowage
