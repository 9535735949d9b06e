#include "stowage/simulated_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <future>
#include <limits>

#include "stowage/error.h"
#include "tests/device/device_conformance.h"
#include "tests/device/simulated/executors.h"

namespace stowage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DeviceFactory factory(const char* name, Executor executor, bool check) {
  return {name, [=] {
            return open_simulated_device({.capacity = 16_MiB, .executor = executor, .check_accesses = check});
          }};
}
INSTANTIATE_TEST_SUITE_P(Simulated, DeviceConformance,
                         testing::Values(factory("threaded", Executor::threaded, true),
                                         factory("virtual_time", Executor::virtual_time, true),
                                         factory("unchecked", Executor::threaded, false)),
                         factory_name);

void launch_reading(Device& device, const Lane& lane, std::string_view name, const void* address, Bytes bytes,
                    double seconds = 0, AccessMode mode = AccessMode::read) {
  const Access access{const_cast<void*>(address), bytes, mode};
  Launch launch;
  launch.name = name;
  launch.function = [](void*) {};
  launch.accesses = {&access, 1};
  launch.modelled_seconds = seconds;
  device.launch(lane.id(), launch);
}

// ---- what both executors check

class SimulatedDeviceTest : public testing::TestWithParam<Executor> {
 protected:
  static constexpr Bytes size = 4096;
  SimulatedOptions options() const { return {.capacity = 1_MiB, .executor = GetParam()}; }
  void settle() {
    for (const Lane* lane : {&compute, &h2d, &d2h, &host}) device->synchronise_lane(lane->id());
  }
  void TearDown() override { settle(); }

  std::unique_ptr<SimulatedDevice> device = open_simulated_device(options());
  DeviceMemory memory{*device, MemoryKind::device, size}, pinned{*device, MemoryKind::pinned, size};
  Lane compute{*device, LaneRole::compute}, h2d{*device, LaneRole::h2d}, d2h{*device, LaneRole::d2h};
  Lane host{*device, LaneRole::host};
  Event event{*device};
};
INSTANTIATE_TEST_SUITE_P(Executors, SimulatedDeviceTest, both_executors(),
                         [](const auto& info) { return executor_name(info.param); });

TEST_P(SimulatedDeviceTest, AMissingWaitIsCaughtThoughTimingWouldHideIt) {
  device->copy(h2d.id(), memory.data(), pinned.data(), size, "prefetch W0");
  device->record(event.id(), h2d.id());
  device->record(Event(*device).id(), h2d.id());
  try {  // in virtual time, and almost surely in threads, the copy is long done
    launch_reading(*device, compute, "f0", memory.data(), size);
    FAIL() << "the missing wait was not seen";
  } catch (const AccessViolation& violation) {
    EXPECT_EQ(violation.call(), "launch");
    EXPECT_THAT(violation.what(),
                AllOf(HasSubstr("'f0' on compute lane 0"), HasSubstr("'prefetch W0' on h2d lane 1")));
  }
  device->wait(compute.id(), event.id());
  launch_reading(*device, compute, "f0", memory.data(), size);
}

TEST_P(SimulatedDeviceTest, NothingIsDoneForACallThatIsRefused) {
  std::memset(pinned.data(), 1, size);
  device->copy(h2d.id(), memory.data(), pinned.data(), size, "prefetch");
  bool ran = false;
  const Access access{memory.data(), size, AccessMode::write};
  Launch launch;
  launch.name = "f";
  launch.function = [](void* context) { *static_cast<bool*>(context) = true; };
  launch.context = &ran;
  launch.accesses = {&access, 1};
  const DeviceCounters before = device->counters();
  EXPECT_THROW(device->launch(compute.id(), launch), AccessViolation);
  EXPECT_THROW(device->copy(d2h.id(), pinned.data(), memory.data(), size, "offload"), AccessViolation);
  settle();
  EXPECT_FALSE(ran);
  EXPECT_EQ(device->counters().d2h_bytes, before.d2h_bytes);
}

TEST_P(SimulatedDeviceTest, AccessesStayInsideOneLiveAllocation) {
  const auto reads = [&](const void* address, Bytes bytes) {
    launch_reading(*device, compute, "f", address, bytes);
  };
  const auto violation = [&](const void* address, Bytes bytes) -> std::string {
    try {
      reads(address, bytes);
    } catch (const AccessViolation& error) {
      return error.what();
    }
    return "no violation";
  };
  EXPECT_THAT(violation(pinned.data() + 1, size), HasSubstr("which end past it"));
  EXPECT_THAT(violation(pinned.data(), std::numeric_limits<Bytes>::max()), HasSubstr("which end past it"));
  EXPECT_THAT(violation(this, 8), HasSubstr("which no live allocation holds"));
  EXPECT_THAT(violation(nullptr, 8), HasSubstr("which no live allocation holds"));
  EXPECT_THROW(device->copy(h2d.id(), memory.data() + 1, pinned.data(), size, "c"), AccessViolation);
  EXPECT_THROW(device->copy(h2d.id(), memory.data(), this, 8, "c"), AccessViolation);
  EXPECT_THROW(device->discard(compute.id(), memory.data() + 1, size), AccessViolation);
  EXPECT_THROW(device->discard(compute.id(), pinned.data(), size), InvalidInput);
  reads(nullptr, 0);
  std::byte* gone = nullptr;
  {
    const DeviceMemory short_lived(*device, MemoryKind::device, size);
    gone = short_lived.data();
  }
  EXPECT_THAT(violation(gone, 8), HasSubstr("which no live allocation holds"));
}

TEST_P(SimulatedDeviceTest, UnmappedBytesMayNotBeTouched) {
  const Bytes granule = device->granularity();
  auto* const range = static_cast<std::byte*>(device->reserve(2 * granule));
  device->map(range, 0, granule);
  launch_reading(*device, compute, "f", range, granule, 0, AccessMode::write);
  EXPECT_THROW(launch_reading(*device, compute, "f", range, granule + 1, 0, AccessMode::write),
               AccessViolation);
  EXPECT_THROW(device->unmap(range, 0, granule), AccessViolation);  // the launch may still run
  device->synchronise_lane(compute.id());
  device->unmap(range, 0, granule);
  device->map(range, 0, granule);
  EXPECT_THROW(launch_reading(*device, compute, "f", range, 8), AccessViolation);  // undefined again
  device->unreserve(range);
  EXPECT_EQ(device->memory_info().free, 1_MiB - size);
}

TEST_P(SimulatedDeviceTest, MemoryInUseIsNotReleased) {
  const Bytes free = device->memory_info().free;
  device->copy(h2d.id(), memory.data(), pinned.data(), size, "prefetch");
  EXPECT_THROW(device->release(MemoryKind::device, memory.data()), AccessViolation);
  EXPECT_THROW(device->release(MemoryKind::pinned, pinned.data()), AccessViolation);
  EXPECT_EQ(device->memory_info().free, free);
  device->synchronise_lane(h2d.id());
  memory = {};
  EXPECT_EQ(device->memory_info().free, 1_MiB);
}

TEST_P(SimulatedDeviceTest, ADoneQuerySynchronises) {
  device->copy(h2d.id(), memory.data(), pinned.data(), size, "prefetch");
  device->record(event.id(), h2d.id());
  while (!device->query(event.id())) std::this_thread::yield();
  launch_reading(*device, compute, "f", memory.data(), size);
}

TEST_P(SimulatedDeviceTest, WithoutHostOrderOnlyEventsCount) {
  settle();
  SimulatedOptions strict = options();
  strict.host_orders = false;
  const auto other = open_simulated_device(strict);
  const DeviceMemory there(*other, MemoryKind::device, size), here(*other, MemoryKind::pinned, size);
  const Lane in(*other, LaneRole::h2d), work(*other, LaneRole::compute);
  const Event arrived(*other);
  other->copy(in.id(), there.data(), here.data(), size, "prefetch");
  other->record(arrived.id(), in.id());
  other->synchronise(arrived.id());
  EXPECT_THROW(launch_reading(*other, work, "f", there.data(), size), AccessViolation);
  other->wait(work.id(), arrived.id());
  launch_reading(*other, work, "f", there.data(), size);
  other->synchronise_lane(work.id());  // … but memory may be given back
}

TEST_P(SimulatedDeviceTest, WithoutChecksOnlyBoundsAreKept) {
  SimulatedOptions lax = options();
  lax.check_accesses = false;
  const auto other = open_simulated_device(lax);
  const DeviceMemory there(*other, MemoryKind::device, size), here(*other, MemoryKind::pinned, size);
  const Lane work(*other, LaneRole::compute);
  launch_reading(*other, work, "f", there.data(), size);  // undefined
  EXPECT_THROW(launch_reading(*other, work, "f", there.data(), size + 1), AccessViolation);
  other->synchronise_lane(work.id());
  EXPECT_EQ(other->counters().highest_device_byte, size);
}

TEST_P(SimulatedDeviceTest, TracksTheHighestDeviceByte) {
  EXPECT_EQ(device->counters().highest_device_byte, 0u);
  device->discard(compute.id(), memory.data(), size);
  launch_reading(*device, compute, "f", pinned.data(), size);
  EXPECT_EQ(device->counters().highest_device_byte, 0u);  // neither discards nor pinned bytes count
  settle();
  device->copy(h2d.id(), memory.data() + 100, pinned.data() + 3000, 50, "prefetch");
  EXPECT_EQ(device->counters().highest_device_byte, 150u);
  settle();
  launch_reading(*device, compute, "f", memory.data() + 200, 60, 0, AccessMode::write);
  EXPECT_EQ(device->counters().highest_device_byte, 260u);
  settle();
  device->copy(d2h.id(), pinned.data(), memory.data() + 300, 10, "offload");
  launch_reading(*device, compute, "f", memory.data(), 5, 0, AccessMode::write);
  EXPECT_EQ(device->counters().highest_device_byte, 310u);
  device->reset_counters();
  EXPECT_EQ(device->counters().highest_device_byte, 0u);
}

TEST_P(SimulatedDeviceTest, FreshAndDiscardedBytesReadAsNan) {
  const DeviceMemory back(*device, MemoryKind::pinned, size);
  const auto nans = [&] {
    device->copy(d2h.id(), back.data(), memory.data(), size, "back");
    device->synchronise_lane(d2h.id());
    int count = 0;
    for (Bytes i = 0; i < size / sizeof(double); ++i) {
      double value = 0;
      std::memcpy(&value, back.data() + i * sizeof value, sizeof value);
      count += std::isnan(value) ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(nans(), 512);
  device->copy(h2d.id(), memory.data(), pinned.data(), size, "zeros");
  settle();
  EXPECT_EQ(nans(), 0);
  device->discard(compute.id(), memory.data() + 1024, 2048);
  settle();
  EXPECT_EQ(nans(), 256);
}

TEST_P(SimulatedDeviceTest, RefusesAnUnknownLaneAndALaunchOfNothing) {
  EXPECT_THROW(device->discard(77, memory.data(), size), InvalidInput);
  Launch empty;
  empty.name = "nothing to run";
  EXPECT_THROW(device->launch(compute.id(), empty), InvalidInput);
}

TEST_P(SimulatedDeviceTest, CallsAreCounted) {
  device->reset_counters();
  device->record(event.id(), compute.id());
  device->wait(h2d.id(), event.id());
  device->synchronise(event.id());
  device->query(event.id());
  EXPECT_THROW(device->record(99, compute.id()), InvalidInput);
  EXPECT_EQ(device->counters().calls, 5u);
}

TEST_P(SimulatedDeviceTest, AWaitFromBeforeTheReportStillFailsItsLane) {
  device->set_fault({0, Fault::Kind::work});
  device->copy(h2d.id(), memory.data(), pinned.data(), size, "prefetch");
  device->record(event.id(), h2d.id());
  device->wait(compute.id(), event.id());
  EXPECT_THROW(device->synchronise_lane(h2d.id()), DeviceError);
  EXPECT_THROW(device->synchronise_lane(compute.id()), DeviceError);
}

// ---- virtual time

class VirtualTimeTest : public testing::Test {
 protected:
  static constexpr Bytes size = 4096;
  static constexpr Link in{1e6, 0.5, true}, out{2e6, 0.25, true};
  double at(const Event& event) { return device->elapsed_seconds(zero.id(), event.id()); }
  void record(const Event& event, const Lane& lane) { device->record(event.id(), lane.id()); }

  std::unique_ptr<SimulatedDevice> device =
      open_simulated_device({.executor = Executor::virtual_time, .h2d = in, .d2h = out});
  DeviceMemory memory{*device, MemoryKind::device, size}, pinned{*device, MemoryKind::pinned, size};
  Lane compute{*device, LaneRole::compute}, h2d{*device, LaneRole::h2d}, d2h{*device, LaneRole::d2h};
  Event zero{*device}, a{*device}, b{*device}, c{*device};
  void SetUp() override { record(zero, compute); }
  void TearDown() override {
    for (const Lane* lane : {&compute, &h2d, &d2h}) device->synchronise_lane(lane->id());
  }
};

TEST_F(VirtualTimeTest, CopiesTakeTheLinksTime) {
  device->copy(h2d.id(), memory.data(), pinned.data(), size, "in");
  record(a, h2d);
  EXPECT_EQ(at(a), in.seconds(size));
  device->copy(h2d.id(), memory.data(), pinned.data(), 100, "in");
  record(b, h2d);
  EXPECT_EQ(at(b), in.seconds(size) + in.seconds(100));
  device->wait(d2h.id(), b.id());
  device->copy(d2h.id(), pinned.data(), memory.data(), 100, "out");
  record(c, d2h);
  EXPECT_EQ(at(c), in.seconds(size) + in.seconds(100) + out.seconds(100));
}

TEST_F(VirtualTimeTest, LanesOverlapAndWaitsJoinThem) {
  device->copy(h2d.id(), memory.data(), pinned.data(), 1000, "in");
  record(a, h2d);
  launch_reading(*device, compute, "long", nullptr, 0, 10.0);
  record(b, compute);
  EXPECT_EQ(at(b), 10.0);  // beside the copy
  device->wait(compute.id(), a.id());
  launch_reading(*device, compute, "f", memory.data(), 1000, 1.0);
  record(c, compute);
  EXPECT_EQ(at(c), 11.0);  // the copy was done already
  device->wait(d2h.id(), c.id());
  device->copy(d2h.id(), pinned.data() + 1000, memory.data(), 1000, "out");
  record(a, d2h);
  EXPECT_EQ(at(a), 11.0 + out.seconds(1000));
}

TEST_F(VirtualTimeTest, DiscardsTakeNoTime) {
  device->discard(compute.id(), memory.data(), size);
  record(a, compute);
  EXPECT_EQ(at(a), 0.0);
}

TEST_F(VirtualTimeTest, WorkEnqueuedAfterSynchronisingStartsNoEarlier) {
  launch_reading(*device, compute, "f", nullptr, 0, 3.0);
  record(a, compute);
  device->copy(h2d.id(), memory.data(), pinned.data(), 1000, "before");
  record(b, h2d);
  EXPECT_EQ(at(b), in.seconds(1000));
  device->synchronise(a.id());
  device->copy(h2d.id(), memory.data(), pinned.data(), 1000, "after");
  record(c, h2d);
  EXPECT_EQ(at(c), 3.0 + in.seconds(1000));
}

TEST_F(VirtualTimeTest, AnUnthrottledLinkStillHasItsModelledTime) {
  const auto other = open_simulated_device({.executor = Executor::virtual_time});
  const DeviceMemory there(*other, MemoryKind::device, size), here(*other, MemoryKind::pinned, size);
  const Lane lane(*other, LaneRole::h2d);
  const Event begin(*other), end(*other);
  other->record(begin.id(), lane.id());
  other->copy(lane.id(), there.data(), here.data(), size, "in");
  other->record(end.id(), lane.id());
  EXPECT_EQ(other->elapsed_seconds(begin.id(), end.id()), Link::unthrottled().seconds(size));
  other->synchronise_lane(lane.id());
}

}  // namespace
}  // namespace stowage
