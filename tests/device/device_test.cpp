#include "stowage/device.h"

#include <gtest/gtest.h>

#include <utility>

#include "stowage/simulated_device.h"

namespace stowage {
namespace {

TEST(LaneRole, HasAName) {
  EXPECT_EQ(to_string(LaneRole::compute), "compute");
  EXPECT_EQ(to_string(LaneRole::h2d), "h2d");
  EXPECT_EQ(to_string(LaneRole::d2h), "d2h");
  EXPECT_EQ(to_string(LaneRole::host), "host");
}

TEST(DeviceMemory, MovesAndGivesBackOnce) {
  const auto device = open_simulated_device({.capacity = 100, .executor = Executor::virtual_time});
  DeviceMemory a(*device, MemoryKind::device, 60);
  std::byte* const address = a.data();
  DeviceMemory b(std::move(a));
  EXPECT_EQ(b.data(), address);
  EXPECT_EQ(b.bytes(), 60u);
  EXPECT_EQ(a.data(), nullptr);
  a = std::move(b);
  EXPECT_EQ(a.data(), address);
  EXPECT_EQ(device->memory_info().free, 40u);
  a = DeviceMemory(*device, MemoryKind::device, 40);
  EXPECT_EQ(device->memory_info().free, 60u);
  a = {};
  EXPECT_EQ(device->memory_info().free, 100u);
}

TEST(DeviceMemory, SaysWhatItsDestructorCouldNotGiveBack) {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  const Lane lane(*device, LaneRole::h2d);
  const DeviceMemory pinned(*device, MemoryKind::pinned, 64);
  testing::internal::CaptureStderr();
  {
    const DeviceMemory memory(*device, MemoryKind::device, 64);
    device->copy(lane.id(), memory.data(), pinned.data(), 64, "in flight");
  }
  EXPECT_NE(testing::internal::GetCapturedStderr().find("in flight"), std::string::npos);
  device->synchronise_lane(lane.id());
}

TEST(Lane, MovesAndIsDestroyedOnce) {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  LaneId id = 0;
  {
    Lane a(*device, LaneRole::compute);
    id = a.id();
    Lane b(std::move(a));
    EXPECT_EQ(b.id(), id);
    device->synchronise_lane(id);
    a = std::move(b);
    device->synchronise_lane(id);
  }
  EXPECT_ANY_THROW(device->synchronise_lane(id));
}

TEST(Event, MovesAndIsDestroyedOnce) {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  EventId id = 0;
  {
    Event a(*device);
    id = a.id();
    Event b(std::move(a));
    EXPECT_TRUE(device->query(b.id()));
    a = std::move(b);
    EXPECT_TRUE(device->query(id));
  }
  EXPECT_ANY_THROW(device->query(id));
}

}  // namespace
}  // namespace stowage
