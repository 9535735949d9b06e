#include "offload/engine/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "stowage/error.h"
#include "stowage/simulated_device.h"
#include "tests/allocator/device_decorator.h"

namespace stowage {
namespace {

constexpr Bytes page = 4096;

std::size_t pages_touched(const std::byte* data, Bytes bytes) {
  std::vector<unsigned char> resident((bytes + page - 1) / page);
  EXPECT_EQ(mincore(const_cast<std::byte*>(data), bytes, resident.data()), 0);
  return static_cast<std::size_t>(
      std::count_if(resident.begin(), resident.end(), [](unsigned char one) { return (one & 1U) != 0; }));
}

// Of a pageable, a pinned and a bucket without a place on the host.
Plan plan_of(Bytes pageable, Bytes pinned) {
  Plan plan;
  plan.buckets.resize(3);
  for (const std::size_t on_host : {0U, 1U}) plan.buckets[on_host].places = {{MemoryId::host, on_host == 1}};
  plan.buckets[0].bytes = pageable;
  plan.buckets[1].bytes = pinned;
  plan.buckets[0].name = "b0";
  plan.buckets[1].name = "b1";
  return plan;
}

TEST(HostMemory, IsZeroAndNotTouchedToMakeItSo) {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  const HostMemory host(*device, plan_of(64_MiB, 16_MiB));
  EXPECT_EQ(host.bucket(2), nullptr);
  EXPECT_EQ(pages_touched(host.bucket(0), 64_MiB), 0u);
  EXPECT_EQ(pages_touched(host.bucket(1), 16_MiB), 0u);
  for (const Bytes at : {Bytes{0}, 16_MiB - 1}) {
    EXPECT_EQ(host.bucket(0)[at], std::byte{0});
    EXPECT_EQ(host.bucket(1)[at], std::byte{0});
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host.bucket(0)) % 64, 0u);
}

TEST(HostMemory, RunsOutWithATypedError) {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  constexpr Bytes much = Bytes{1} << 60;
  try {
    HostMemory(*device, plan_of(much, 64));
    FAIL() << "taken";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), much);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("for bucket 'b0': allocate (the host has no more): "));
  }
}

TEST(HostMemory, FallsBackToMemoryThatIsNotPageLockedWhereItMay) {
  const auto device = open_simulated_device({.host_capacity = 1_MiB, .executor = Executor::virtual_time});
  Plan plan = plan_of(1_MiB, 1_MiB + 1);
  plan.buckets.push_back(plan.buckets[1]);
  plan.buckets[3].bytes = 1_MiB;
  const HostMemory host(*device, plan, true);
  EXPECT_THAT(host.unpinned(), ::testing::ElementsAre(1U));
  EXPECT_EQ(device->counters().pinned_allocations, 1U);
  EXPECT_EQ(host.bucket(1)[1_MiB], std::byte{0});
  try {
    HostMemory(*device, plan);
    FAIL() << "taken";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), 1_MiB + 1);
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("the host cannot page-lock 1.00 MiB for bucket 'b1': allocate: "));
  }
}

// It says what it is asked for.
class Asked : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  void* allocate(MemoryKind kind, Bytes bytes) override {
    asked.emplace_back(kind, bytes);
    return DeviceDecorator::allocate(kind, bytes);
  }
  std::vector<std::pair<MemoryKind, Bytes>> asked;
};

// Which knows the host memory that it is next to.
TEST(HostMemory, IsAllOfTheDevice) {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  Asked asking(*device);
  Plan plan = plan_of(2_MiB, 1_MiB);
  plan.undo_bytes = 4_KiB;
  const HostMemory host(asking, plan);
  EXPECT_THAT(asking.asked, ::testing::ElementsAre(std::pair{MemoryKind::pageable, 2_MiB},
                                                   std::pair{MemoryKind::pinned, 1_MiB},
                                                   std::pair{MemoryKind::pageable, 4_KiB}));
}

// Two gradients, of which the second has bytes of the first.
TEST(HostMemory, HasTheGradientRingOnce) {
  const auto device = open_simulated_device({.host_capacity = 1_MiB, .executor = Executor::virtual_time});
  Plan plan;
  plan.optimizer_in_backward = true;
  plan.ring_bytes = 1_MiB;
  plan.buckets.resize(2);
  for (const std::size_t id : {0U, 1U}) {
    plan.buckets[id].bytes = 768_KiB;
    plan.buckets[id].places = {{MemoryId::host, true, id * 256_KiB}};
  }
  const HostMemory host(*device, plan);
  EXPECT_EQ(device->counters().pinned_allocations, 1U);
  EXPECT_EQ(host.bucket(1), host.bucket(0) + 256_KiB);
  EXPECT_THAT(host.unpinned(), ::testing::IsEmpty());
  plan.ring_bytes = 1_MiB + 1;
  const auto other = open_simulated_device({.host_capacity = 1_MiB, .executor = Executor::virtual_time});
  const HostMemory unpinned(*other, plan, true);
  EXPECT_THAT(unpinned.unpinned(), ::testing::ElementsAre(0U, 1U));
  EXPECT_EQ(unpinned.bucket(1), unpinned.bucket(0) + 256_KiB);
  EXPECT_THROW(HostMemory(*other, plan), OutOfMemory);
}

}  // namespace
}  // namespace stowage
