#include "offload/engine/staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "stowage/plan.h"
#include "tests/allocator/device_decorator.h"
#include "tests/offload/engine/immediate_device.h"

namespace stowage {
namespace {

class CountsCopies : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  void copy(LaneId lane, void* to, const void* from, Bytes bytes, std::string_view label) override {
    ++copies;
    DeviceDecorator::copy(lane, to, from, bytes, label);
  }
  int copies = 0;
};

class StagingCopies : public ::testing::Test {
 protected:
  // Of a value up and back.
  int copies(Bytes value_bytes, Bytes spare_bytes) {
    const int before = device_.copies;
    std::vector<std::byte> spare(spare_bytes), there(value_bytes), back(value_bytes), value(value_bytes);
    for (Bytes i = 0; i < value_bytes; ++i) value[i] = static_cast<std::byte>(i * 7 % 251);
    Staging staging(device_, lanes_, spare, false);
    staging.upload(there.data(), value);
    staging.download(back, there.data());
    EXPECT_TRUE(there == value && back == value) << value_bytes << " bytes through " << spare_bytes;
    return device_.copies - before;
  }

  testing::ImmediateDevice immediate_;
  CountsCopies device_{immediate_};
  Lanes lanes_{device_, Plan{}};
};

// Each copy is waited for: a model's values in pieces of a small batch's tokens would take minutes.
TEST_F(StagingCopies, AreFewHoweverSmallTheSpareRangeIs) {
  for (const Bytes spare : {Bytes{0}, Bytes{64}, 1_KiB, 256_KiB - 1})
    EXPECT_EQ(copies(8_MiB, spare), 2 * 2) << spare;
}

TEST_F(StagingCopies, GoThroughTheSpareRangeWhereItIsLarge) {
  immediate_.reset_counters();
  EXPECT_EQ(copies(8_MiB, 256_KiB), 2 * 32);
  EXPECT_EQ(copies(1_KiB, 1_KiB), 2 * 1);
  EXPECT_EQ(immediate_.counters().pinned_allocations, 0U);
}

}  // namespace
}  // namespace stowage
