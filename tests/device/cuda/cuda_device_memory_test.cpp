// Memory of the CUDA device over the fake runtime and driver: page-locked, mapped, counted.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/base/parallel_for.h"
#include "stowage/cuda_device.h"
#include "stowage/error.h"
#include "stowage/machine_file.h"
#include "tests/device/cuda/cuda_device_fixture.h"

namespace stowage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(CudaDeviceTest, PinsExactlyWhatIsAsked) {
  const auto device = open_cuda_device();
  const DeviceMemory pinned(*device, MemoryKind::pinned, 5000);
  EXPECT_EQ(fake_cuda_live().pinned_bytes, 5000u);
  EXPECT_EQ(pinned.data()[4999], std::byte{0});
  const DeviceMemory several_chunks(*device, MemoryKind::pinned,
                                    130_MiB + 1);  // all faulted in, see TearDown
}

TEST_F(CudaDeviceTest, MapsInFewCalls) {
  constexpr std::uint64_t call = 25'000;
  const auto device = open_cuda_device({.scratch = 0});
  fake_cuda_forget_calls();
  void* const memory = device->allocate(MemoryKind::device, 1_GiB);
  EXPECT_EQ(fake_cuda_virtual_nanoseconds(), 5 * call);  // reserve, create, map, release, access
  device->release(MemoryKind::device, memory);
  EXPECT_EQ(fake_cuda_virtual_nanoseconds(), 7 * call);
  void* const range = device->reserve(2_GiB);
  fake_cuda_forget_calls();
  device->map_pieces(range, 512_MiB, 1_GiB, 64_MiB);
  EXPECT_EQ(fake_cuda_virtual_nanoseconds(), (16 * 3 + 1) * call);
  device->unmap(range, 512_MiB, 512_MiB);
  EXPECT_EQ(fake_cuda_virtual_nanoseconds(), (16 * 3 + 2) * call);
  device->unreserve(range);  // with the rest of it
  EXPECT_EQ(fake_cuda_virtual_nanoseconds(), (16 * 3 + 4) * call);
}

// What a plan is given beside the overhead fits, with all that it may page-lock and the code that libraries
// load, in the tightest case: an arena that ends a byte into its last granule.
TEST_F(CudaDeviceTest, ABudgetHoldsThePageTables) {
  constexpr Bytes context = 64_MiB, code = 64_MiB, granule = 2_MiB, pinned_bytes = 256_MiB;
  const Bytes budget = context + granule + code + granule + 200 * granule + 1;
  fake_cuda_set_memory(budget, context);
  const auto device = open_cuda_device({.scratch = 0});
  const Bytes overhead = overhead_on(*device, 0, pinned_bytes);
  const DeviceMemory arena(*device, MemoryKind::device, budget - overhead);
  const DeviceMemory pinned(*device, MemoryKind::pinned, pinned_bytes);
  void* loaded = nullptr;
  EXPECT_EQ(cudaMalloc(&loaded, code), cudaSuccess);
  EXPECT_EQ(cudaFree(loaded), cudaSuccess);
}

// A copy's lock is not held while the driver maps.
TEST_F(CudaDeviceTest, CopiesGoOnWhileMemoryIsMapped) {
  const auto device = open_cuda_device({.scratch = 0});
  const DeviceMemory memory(*device, MemoryKind::device, 1000), pinned(*device, MemoryKind::pinned, 1000);
  const Lane lane(*device, LaneRole::h2d);
  const Event event(*device);
  void* const range = device->reserve(4_MiB);
  const auto copy = [&] {
    device->copy(lane.id(), memory.data(), pinned.data(), 1000, "meanwhile");
    device->record(event.id(), lane.id());
    device->query(event.id());
    device->synchronise_lane(lane.id());
  };
  fake_cuda_during_call(
      "cuMemSetAccess", [](void* context) { (*static_cast<decltype(copy)*>(context))(); },
      const_cast<void*>(static_cast<const void*>(&copy)));
  device->map(range, 0, 4_MiB);
  EXPECT_EQ(fake_cuda_calls("cudaMemcpyAsync"), 1u);
  device->unreserve(range);
}

TEST_F(CudaDeviceTest, UnmapsAnyPartOfARange) {
  const auto device = open_cuda_device();
  const Bytes granule = device->granularity();
  void* const range = device->reserve(4 * granule);
  device->map(range, 0, 4 * granule);
  device->unmap(range, granule, 2 * granule);
  EXPECT_EQ(fake_cuda_live().physical_bytes, 2 * granule);
  device->map(range, 2 * granule, granule);
  EXPECT_EQ(fake_cuda_live().physical_bytes, 3 * granule);
  device->unreserve(range);  // with what is mapped
  EXPECT_EQ(fake_cuda_live().physical_bytes, 0u);
  EXPECT_EQ(fake_cuda_live().reservations, 0u);
}

TEST_F(CudaDeviceTest, MapsAllOrNothing) {
  fake_cuda_set_page_tables(0, 0);
  fake_cuda_set_memory(256_MiB, 0);
  const auto device = open_cuda_device({.scratch = 0});
  const Bytes granule = device->granularity();
  void* const range = device->reserve(512_MiB);
  device->map(range, 0, granule);
  try {
    device->map(range, granule, 256_MiB);
    FAIL() << "more than there is was mapped";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), 256_MiB);
    EXPECT_EQ(error.free_bytes(), 256_MiB - granule);
  }
  EXPECT_EQ(fake_cuda_live().physical_bytes, granule);
  EXPECT_EQ(fake_cuda_live().mappings, 1u);
  device->map(range, granule, 256_MiB - granule);
}

TEST_F(CudaDeviceTest, OutOfMemoryHoldsTheAccount) {
  fake_cuda_set_page_tables(0, 0);
  fake_cuda_set_memory(64_MiB, 0);
  const auto device = open_cuda_device({.scratch = 0});
  const DeviceMemory a(*device, MemoryKind::device, 4_MiB), b(*device, MemoryKind::device, 32_MiB);
  const DeviceMemory pinned(*device, MemoryKind::pinned, 12345);
  try {
    device->allocate(MemoryKind::device, 40_MiB);
    FAIL() << "more than there is was allocated";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.requested_bytes(), 40_MiB);
    EXPECT_EQ(error.free_bytes(), 28_MiB);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("41943040 bytes (40.00 MiB)"), HasSubstr("device 0"),
                      HasSubstr("37748736 bytes of device and 12345 of host memory"),
                      HasSubstr("the largest 33554432 in allocation 2, 4194304 in allocation 1"),
                      HasSubstr("cuMemCreate")));
  }
}

TEST_F(CudaDeviceTest, WorksWithoutVirtualMemory) {
  for (const bool driver_has_it : {true, false}) {
    fake_cuda_reset();
    fake_cuda_set_virtual_memory(driver_has_it ? 1 : 0);
    const auto device = open_cuda_device({.virtual_memory = !driver_has_it, .scratch = 0});
    const DeviceMemory memory(*device, MemoryKind::device, 1000), pinned(*device, MemoryKind::pinned, 1000);
    EXPECT_EQ(fake_cuda_live().device_bytes, 1000u);
    EXPECT_EQ(fake_cuda_live().reservations, 0u);
    const Lane lane(*device, LaneRole::h2d);
    device->copy(lane.id(), memory.data(), pinned.data(), 1000, "there");
    device->synchronise_lane(lane.id());
    EXPECT_THROW(device->reserve(device->granularity()), InvalidInput);
    EXPECT_THROW(device->allocate(MemoryKind::device, device->memory_info().free + 1), OutOfMemory);
  }
}

TEST_F(CudaDeviceTest, RefusesAccessesThatNoAllocationHolds) {
  const auto device = open_cuda_device();
  fake_cuda_forget_calls();
  const DeviceMemory memory(*device, MemoryKind::device, 1000), pinned(*device, MemoryKind::pinned, 1000);
  const Lane h2d(*device, LaneRole::h2d), compute(*device, LaneRole::compute), host(*device, LaneRole::host);
  EXPECT_THROW(device->copy(h2d.id(), memory.data(), pinned.data(), 1001, "too long"), AccessViolation);
  std::byte local{};
  EXPECT_THROW(device->copy(h2d.id(), memory.data(), &local, 1, "pageable"), AccessViolation);
  auto* const range = static_cast<std::byte*>(device->reserve(device->granularity()));
  EXPECT_THROW(device->copy(h2d.id(), range, pinned.data(), 1, "unmapped"), AccessViolation);
  EXPECT_THROW(device->discard(compute.id(), memory.data() + 1, 1000), AccessViolation);
  EXPECT_THROW(device->discard(compute.id(), pinned.data(), 1), InvalidInput);
  bool ran = false;
  const Access access{memory.data(), 1000, AccessMode::write};
  Launch launch;
  launch.name = "write";
  launch.function = [](void* context) { *static_cast<bool*>(context) = true; };
  launch.context = &ran;
  launch.accesses = {&access, 1};
  EXPECT_THROW(device->launch(host.id(), launch), AccessViolation);
  EXPECT_FALSE(ran);
  device->launch(compute.id(), launch);
  EXPECT_TRUE(ran);  // at once: it would enqueue kernels
  EXPECT_EQ(fake_cuda_calls("cudaMemcpyAsync"), 0u);
}

TEST_F(CudaDeviceTest, RemembersTheHighestByteThatIsNamed) {
  const auto device = open_cuda_device();
  const DeviceMemory memory(*device, MemoryKind::device, 1000), pinned(*device, MemoryKind::pinned, 5000);
  const Lane h2d(*device, LaneRole::h2d), compute(*device, LaneRole::compute);
  device->copy(h2d.id(), memory.data() + 100, pinned.data() + 3000, 200, "there");
  EXPECT_EQ(device->counters().highest_device_byte, 300u);
  const Access accesses[] = {{memory.data(), 700, AccessMode::read}, {pinned.data(), 5000, AccessMode::read}};
  Launch launch;
  launch.name = "read";
  launch.function = [](void*) {};
  launch.accesses = accesses;
  device->launch(compute.id(), launch);
  EXPECT_EQ(device->counters().highest_device_byte, 700u);
  device->reset_counters();
  EXPECT_EQ(device->counters().highest_device_byte, 0u);
  device->synchronise_lane(h2d.id());
}

}  // namespace
}  // namespace stowage
