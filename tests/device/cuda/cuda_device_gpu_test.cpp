// The same suite on a real card; skipped with the reason where there is none.
#include "stowage/cuda_device.h"
#include "tests/device/device_conformance.h"

namespace stowage {
namespace {

DeviceFactory card(const std::string& name, bool virtual_memory) {
  const CudaStatus status = cuda_status();
  return {name,
          [=]() -> std::unique_ptr<Device> {
            if (!status.available) return nullptr;
            return open_cuda_device({.virtual_memory = virtual_memory});
          },
          status.reason, 32_MiB};
}

INSTANTIATE_TEST_SUITE_P(Gpu, DeviceConformance, testing::Values(card("card", true)), factory_name);

TEST(CudaDeviceGpu, HoldsNoMoreThanItSays) {
  if (const CudaStatus status = cuda_status(); !status.available) GTEST_SKIP() << status.reason;
  const auto device = open_cuda_device();
  const MemoryInfo before = device->memory_info();
  const Bytes granule = device->granularity();
  const DeviceMemory memory(*device, MemoryKind::device, 256_MiB);
  const Lane compute(*device, LaneRole::compute), h2d(*device, LaneRole::h2d), d2h(*device, LaneRole::d2h),
      host(*device, LaneRole::host);
  const DeviceMemory pinned(*device, MemoryKind::pinned, 256_MiB), back(*device, MemoryKind::pinned, 256_MiB);
  for (Bytes i = 0; i < pinned.bytes(); i += 4096) pinned.data()[i] = static_cast<std::byte>(i >> 12U);
  device->copy(h2d.id(), memory.data(), pinned.data(), memory.bytes(), "there");
  device->synchronise_lane(h2d.id());
  device->copy(d2h.id(), back.data(), memory.data(), memory.bytes(), "back");
  device->synchronise_lane(d2h.id());
  EXPECT_EQ(std::memcmp(pinned.data(), back.data(), pinned.bytes()), 0);
  const Bytes tables = (pinned.bytes() + back.bytes()) / 512, channels = 32_MiB;
  EXPECT_LE(before.free - device->memory_info().free, 256_MiB + granule + tables + channels);
  EXPECT_LE(device->memory_info().overhead, before.overhead + granule + tables + channels);
}

TEST(CudaDeviceGpu, WorksWithoutVirtualMemory) {
  if (const CudaStatus status = cuda_status(); !status.available) GTEST_SKIP() << status.reason;
  const auto device = open_cuda_device({.virtual_memory = false});
  const DeviceMemory memory(*device, MemoryKind::device, 1000), there(*device, MemoryKind::pinned, 1000),
      back(*device, MemoryKind::pinned, 1000);
  const Lane h2d(*device, LaneRole::h2d), d2h(*device, LaneRole::d2h);
  std::memset(there.data(), 7, there.bytes());
  device->copy(h2d.id(), memory.data(), there.data(), 1000, "there");
  device->synchronise_lane(h2d.id());
  device->copy(d2h.id(), back.data(), memory.data(), 1000, "back");
  device->synchronise_lane(d2h.id());
  EXPECT_EQ(std::memcmp(there.data(), back.data(), 1000), 0);
}

// The driver's own refusal, not ours of more than there is.
TEST(CudaDeviceGpu, SurvivesRunningOutOfMemory) {
  if (const CudaStatus status = cuda_status(); !status.available) GTEST_SKIP() << status.reason;
  for (bool virtual_memory : {true, false}) {
    const auto device = open_cuda_device({.virtual_memory = virtual_memory});
    EXPECT_THROW(device->allocate(MemoryKind::device, device->memory_info().total), OutOfMemory);
    const DeviceMemory memory(*device, MemoryKind::device, 1_MiB);
    EXPECT_NE(memory.data(), nullptr);
  }
}

}  // namespace
}  // namespace stowage
