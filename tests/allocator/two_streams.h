// A device whose calls can be made to fail or be slow, and two lanes of it.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "stowage/simulated_device.h"
#include "tests/allocator/device_decorator.h"

namespace stowage {

class TwoStreams : public testing::Test {
 protected:
  static constexpr Bytes capacity = 64_MiB;
  std::unique_ptr<SimulatedDevice> simulated =
      open_simulated_device({.capacity = capacity, .executor = Executor::virtual_time});
  DeviceDecorator device{*simulated};
  Lane first{device, LaneRole::compute}, second{device, LaneRole::compute};
  LaneId a = first.id(), b = second.id();
};

}  // namespace stowage
