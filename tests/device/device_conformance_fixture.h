// What each test of the suite in device_conformance.h has.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "stowage/device.h"

namespace stowage {

struct DeviceFactory {
  std::string name;
  std::function<std::unique_ptr<Device>()> open;
  std::string why_not = {};  // where `open` gives none, and all tests are skipped
  // Device memory that is not given back: a card's page tables and channels. 0: free memory is exact to the
  // byte.
  Bytes kept = 0;
};

inline void PrintTo(const DeviceFactory& factory, std::ostream* out) { *out << factory.name; }
inline std::string factory_name(const testing::TestParamInfo<DeviceFactory>& info) { return info.param.name; }

class DeviceConformance : public testing::TestWithParam<DeviceFactory> {
 protected:
  static constexpr Bytes size = 4096;

  void SetUp() override {
    if (device == nullptr) GTEST_SKIP() << GetParam().why_not;
  }

  // Enqueues `function()` on a lane; the function must live until it has run.
  template <class Function>
  void run(const Lane& lane, std::string_view name, Function& function) {
    Launch launch;
    launch.name = name;
    launch.function = [](void* context) { (*static_cast<Function*>(context))(); };
    launch.context = &function;
    device->launch(lane.id(), launch);
  }

  static void fill(const DeviceMemory& pinned, int seed) {
    for (Bytes i = 0; i < pinned.bytes(); ++i)
      pinned.data()[i] = static_cast<std::byte>((static_cast<int>(i) * 7 + seed) & 0xff);
  }
  static bool equal(const DeviceMemory& a, const DeviceMemory& b) {
    return a.bytes() == b.bytes() && std::memcmp(a.data(), b.data(), a.bytes()) == 0;
  }

  Bytes free_bytes() const { return device->memory_info().free; }
  // What `cycle` takes comes back, but for what the device keeps; and it keeps nothing more of later cycles.
  template <class Cycle>
  void expect_all_back(Cycle&& cycle) {
    const Bytes before = free_bytes();
    cycle();
    const Bytes once = free_bytes();
    EXPECT_GE(once + GetParam().kept, before);
    for (int i = 0; i < 8; ++i) cycle();
    EXPECT_GE(free_bytes() + std::min(GetParam().kept, device->granularity()), once);
  }

  std::unique_ptr<Device> device = GetParam().open();
};

}  // namespace stowage
