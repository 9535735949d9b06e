// The C interface's allocators on simulated devices.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "allocator/c_api/allocators.h"
#include "stowage/error.h"
#include "stowage/simulated_device.h"
#include "tests/allocator/adopting_device.h"

namespace stowage::c_api {

// The decorator, and what it decorates.
class TestDevice : public AdoptingDevice {
 public:
  explicit TestDevice(std::unique_ptr<SimulatedDevice> device)
      : AdoptingDevice(*device), owned_(std::move(device)) {}

 private:
  std::unique_ptr<SimulatedDevice> owned_;
};

class AllocatorsTest : public testing::Test {
 protected:
  static constexpr Bytes capacity = 64_MiB;
  void* const a = reinterpret_cast<void*>(0x100);
  void* const b = reinterpret_cast<void*>(0x200);
  TestDevice* opened = nullptr;  // the latest
  int opens = 0;

  std::unique_ptr<Device> open(int ordinal) {
    if (ordinal > 1) throw InvalidInput("open: there are two devices");
    ++opens;
    auto device = std::make_unique<TestDevice>(
        open_simulated_device({.capacity = capacity, .executor = Executor::virtual_time}));
    opened = device.get();
    return device;
  }
  Allocators make(const Environment& environment = {}) {
    return {[this](int ordinal) { return open(ordinal); }, environment};
  }
  static stowage_statistics statistics(Allocators& allocators, int device = 0) {
    stowage_statistics found{};
    found.struct_bytes = sizeof found;
    EXPECT_EQ(allocators.get_statistics(device, &found), STOWAGE_OK);
    EXPECT_EQ(found.struct_bytes, sizeof found);
    return found;
  }
  static std::string error() { return Allocators::last_error(); }
  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  void SetUp() override { Allocators::clear_error(); }
};

}  // namespace stowage::c_api
