#include "src/device/simulated/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "stowage/error.h"
#include "tests/device/simulated/executors.h"

namespace stowage::simulated {
namespace {

using testing::HasSubstr;

class MeetingTest : public testing::TestWithParam<Executor> {
 public:  // functions on the lane reach in
  static constexpr Bytes size = 1000;
  std::unique_ptr<SimulatedDevice> opened =
      open_simulated_device({.capacity = 1_MiB, .executor = GetParam()});
  MeetingDevice& device = dynamic_cast<MeetingDevice&>(*opened);
  DeviceMemory memory{device, MemoryKind::device, size}, pinned{device, MemoryKind::pinned, size};
  Lane lane{device, LaneRole::compute}, h2d{device, LaneRole::h2d}, d2h{device, LaneRole::d2h};
  std::optional<Arrival> arrival;
  std::string failure;  // of the arrival
  double end = 0;
  bool throws = false;

  void meet(std::span<const Access> accesses, std::span<const Access> undefined = {}) {
    device.meet(lane.id(), {"meet", &MeetingTest::come, this, accesses, undefined});
  }
  static double come(void* context, const Arrival& arrival) {
    auto& test = *static_cast<MeetingTest*>(context);
    test.arrival = arrival;
    test.failure = arrival.failure == nullptr ? "" : arrival.failure;
    if (test.throws) throw std::runtime_error("nobody came");
    return test.end;
  }
  Access access(Bytes begin, Bytes end_byte, AccessMode mode) {
    return {memory.data() + begin, end_byte - begin, mode};
  }
  void copy_in(Bytes begin, Bytes end_byte) {
    device.copy(h2d.id(), memory.data() + begin, pinned.data() + begin, end_byte - begin, "in");
  }
  void launch_read(Bytes begin, Bytes end_byte) {
    const Access read = access(begin, end_byte, AccessMode::read);
    device.launch(lane.id(), {"read", [](void*) {}, nullptr, {&read, 1}});
  }
  std::string failure_of_lane() {
    try {
      device.synchronise_lane(lane.id());
    } catch (const DeviceError& error) {
      EXPECT_EQ(error.work(), "meet");
      return error.what();
    }
    return "none";
  }
};
INSTANTIATE_TEST_SUITE_P(Executors, MeetingTest, both_executors(),
                         [](const auto& info) { return executor_name(info.param); });

TEST_P(MeetingTest, ReadsUndefinedBytesAndSaysWhichTheyAre) {
  copy_in(100, 300);
  device.synchronise_lane(h2d.id());
  meet(std::array{access(0, size, AccessMode::read)});
  const auto parts = device.undefined_parts(lane.id(), "meet", access(50, 400, AccessMode::read));
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].address, memory.data() + 50);
  EXPECT_EQ(parts[0].bytes, 50u);
  EXPECT_EQ(parts[1].address, memory.data() + 300);
  EXPECT_EQ(parts[1].bytes, 100u);
}

TEST_P(MeetingTest, WhatItWritesIsDefinedButForThePartsItNames) {
  meet(std::array{access(0, 500, AccessMode::write)}, std::array{access(200, 210, AccessMode::write)});
  launch_read(0, 200);
  launch_read(210, 500);
  EXPECT_THROW(launch_read(209, 220), AccessViolation);
  EXPECT_THROW(launch_read(499, 501), AccessViolation);
  device.synchronise_lane(lane.id());
}

TEST_P(MeetingTest, IsOrderedAsALaunchIs) {
  copy_in(0, size);
  EXPECT_THROW(meet(std::array{access(0, 10, AccessMode::read)}), AccessViolation);
  device.synchronise_lane(h2d.id());
  meet(std::array{access(0, 10, AccessMode::read), access(10, 20, AccessMode::write)});
  EXPECT_THROW(copy_in(0, 10), AccessViolation);
  EXPECT_THROW(copy_in(15, 16), AccessViolation);
  copy_in(20, 30);
  device.synchronise_lane(lane.id());
}

TEST_P(MeetingTest, HostLanesMeetOverHostMemoryAlone) {
  const Lane host(device, LaneRole::host);
  const std::array there{access(0, 10, AccessMode::read)};
  EXPECT_THROW(device.meet(host.id(), {"meet", &MeetingTest::come, this, there, {}}), AccessViolation);
  const std::array here{Access{pinned.data(), 10, AccessMode::write}};
  device.meet(host.id(), {"meet", &MeetingTest::come, this, here, {}});
  device.synchronise_lane(host.id());
  EXPECT_TRUE(arrival);
}

TEST_P(MeetingTest, RunsOnALaneThatHasFailedAndSaysWhy) {
  device.launch(lane.id(), {"broken", [](void*) { throw std::runtime_error("out of ink"); }, nullptr, {}});
  meet({});
  EXPECT_THROW(device.synchronise_lane(lane.id()), DeviceError);
  ASSERT_TRUE(arrival);
  EXPECT_THAT(failure, HasSubstr("out of ink"));
}

TEST_P(MeetingTest, FailsItsLaneByWhatItThrows) {
  throws = true;
  meet({});
  EXPECT_THAT(failure_of_lane(), HasSubstr("nobody came"));
  EXPECT_EQ(failure, "");
}

TEST_P(MeetingTest, AnInjectedFaultOfTheWorkIsToldAndReported) {
  for (const bool thrown : {false, true}) {
    throws = thrown;
    opened->set_fault({0, Fault::Kind::work});
    meet({});
    EXPECT_THAT(failure_of_lane(), HasSubstr("fault injected"));
    EXPECT_THAT(failure, HasSubstr("fault injected"));
  }
  opened->set_fault({0, Fault::Kind::call});
  EXPECT_THROW(meet({}), DeviceError);
}

TEST_P(MeetingTest, InVirtualTimeItSaysWhenItEnds) {
  if (GetParam() != Executor::virtual_time) GTEST_SKIP() << "other executors measure";
  const Event begin(device), ended(device);
  device.launch(lane.id(), {"work", [](void*) {}, nullptr, {}, 2});
  device.record(begin.id(), lane.id());
  end = 5;
  meet({});
  device.record(ended.id(), lane.id());
  device.synchronise(ended.id());
  EXPECT_DOUBLE_EQ(device.elapsed_seconds(begin.id(), ended.id()), 3);
  EXPECT_DOUBLE_EQ(arrival->time, 2);
  EXPECT_TRUE(arrival->virtual_time);
}

}  // namespace
}  // namespace stowage::simulated
