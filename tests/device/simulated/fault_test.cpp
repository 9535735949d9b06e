// A fault at every call in turn: a typed error, no leak, and a device that works again.
#include "src/device/simulated/fault.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <tuple>

#include "stowage/error.h"
#include "tests/device/simulated/executors.h"

namespace stowage::simulated {
namespace {

TEST(FaultInjector, FiresOnceAtItsIndex) {
  FaultInjector faults;
  EXPECT_FALSE(faults.next_call());
  faults.set({.index = 2});
  EXPECT_FALSE(faults.next_call());
  EXPECT_FALSE(faults.next_call());
  EXPECT_FALSE(faults.fired());
  EXPECT_EQ(faults.next_call(), Fault::Kind::call);
  EXPECT_TRUE(faults.fired());
  EXPECT_FALSE(faults.next_call());
  EXPECT_EQ(faults.calls(), 5u);
}

TEST(FaultInjector, CanBeCleared) {
  FaultInjector faults;
  faults.set({.index = 0, .kind = Fault::Kind::work});
  faults.clear();
  EXPECT_FALSE(faults.next_call());
  EXPECT_FALSE(faults.fired());
}

// Every call of Device that can fail, at least once: doubles numbers on the device.
class Program {
 public:
  static constexpr Bytes bytes = 64 * sizeof(float);

  explicit Program(Device& device) : device_(device) {}

  float run() {
    Resources r(device_);
    device_.map(r.range.address, 0, device_.granularity());
    auto* const values = static_cast<float*>(r.range.address);
    for (int i = 0; i < 64; ++i) reinterpret_cast<float*>(r.in.data())[i] = 1;
    try {
      enqueue(r, values);
      device_.synchronise(r.end.id());
      device_.synchronise_lane(r.compute.id());
      device_.elapsed_seconds(r.begin.id(), r.end.id());
      EXPECT_TRUE(device_.query(r.end.id()));
      return reinterpret_cast<const float*>(r.out.data())[63];
    } catch (...) {
      settle(r);
      throw;
    }
  }

 private:
  struct Range {
    explicit Range(Device& d) : device(d), address(d.reserve(d.granularity())) {}
    ~Range() { device.unreserve(address); }
    Device& device;
    void* address;
  };
  struct Resources {
    explicit Resources(Device& device)
        : workspace(device, MemoryKind::device, bytes),
          in(device, MemoryKind::pinned, bytes),
          out(device, MemoryKind::pinned, bytes),
          range(device),
          begin(device),
          arrived(device),
          computed(device),
          end(device),
          compute(device, LaneRole::compute),
          h2d(device, LaneRole::h2d),
          d2h(device, LaneRole::d2h) {}
    DeviceMemory workspace, in, out;
    Range range;
    Event begin, arrived, computed, end;
    Lane compute, h2d, d2h;
  };

  void enqueue(Resources& r, float* values) {
    device_.record(r.begin.id(), r.h2d.id());
    device_.copy(r.h2d.id(), values, r.in.data(), bytes, "in");
    device_.record(r.arrived.id(), r.h2d.id());
    device_.wait(r.compute.id(), r.arrived.id());
    const std::array<Access, 3> accesses = {{{values, bytes, AccessMode::read},
                                             {values, bytes, AccessMode::write},
                                             {r.workspace.data(), bytes, AccessMode::write}}};
    Launch launch;
    launch.name = "double";
    launch.function = [](void* context) {
      for (int i = 0; i < 64; ++i) static_cast<float*>(context)[i] *= 2;
    };
    launch.context = values;
    launch.accesses = accesses;
    device_.launch(r.compute.id(), launch);
    device_.discard(r.compute.id(), r.workspace.data(), bytes);
    device_.record(r.computed.id(), r.compute.id());
    device_.wait(r.d2h.id(), r.computed.id());
    device_.copy(r.d2h.id(), r.out.data(), values, bytes, "out");
    device_.record(r.end.id(), r.d2h.id());
  }

  void settle(const Resources& r) noexcept {
    for (const LaneId lane : {r.compute.id(), r.h2d.id(), r.d2h.id()}) try {
        device_.synchronise_lane(lane);
      } catch (const DeviceError&) {  // reported once per failed lane
      }
  }

  Device& device_;
};

using Case = std::tuple<Executor, Fault::Kind>;

class FaultAtEveryCall : public testing::TestWithParam<Case> {};

TEST_P(FaultAtEveryCall, EndsInATypedErrorAndTheDeviceWorksAgain) {
  const auto device = open_simulated_device({.capacity = 1_MiB, .executor = std::get<Executor>(GetParam())});
  Program program(*device);
  device->reset_counters();
  EXPECT_EQ(program.run(), 2.0f);
  const std::uint64_t calls = device->counters().calls;
  EXPECT_EQ(calls, 26u);
  for (std::uint64_t index = 0; index < calls; ++index) {
    device->set_fault({index, std::get<Fault::Kind>(GetParam())});
    std::optional<std::string> error;
    try {
      program.run();
    } catch (const DeviceError& e) {
      error = e.what();
      EXPECT_FALSE(e.call().empty());
    } catch (const OutOfMemory& e) {
      error = e.what();
    }
    ASSERT_TRUE(error) << "call " << index << " did not fail";
    EXPECT_NE(error->find("fault injected"), std::string::npos) << *error;
    EXPECT_TRUE(device->fault_fired());
    EXPECT_EQ(device->memory_info().free, 1_MiB) << "after a fault at call " << index;
    ASSERT_EQ(program.run(), 2.0f) << "after a fault at call " << index;
  }
}

INSTANTIATE_TEST_SUITE_P(All, FaultAtEveryCall,
                         testing::Combine(both_executors(),
                                          testing::Values(Fault::Kind::call, Fault::Kind::work)),
                         [](const auto& info) {
                           const bool call = std::get<Fault::Kind>(info.param) == Fault::Kind::call;
                           return executor_name(std::get<Executor>(info.param)) + (call ? "_call" : "_work");
                         });

TEST(Fault, OfACallIsNotTheFaultOfItsWork) {
  const auto device = open_simulated_device({.executor = Executor::virtual_time});
  const DeviceMemory memory(*device, MemoryKind::device, 64), pinned(*device, MemoryKind::pinned, 64);
  const Lane lane(*device, LaneRole::h2d);
  device->set_fault({0, Fault::Kind::call});
  EXPECT_THROW(device->copy(lane.id(), memory.data(), pinned.data(), 64, "x"), DeviceError);
  device->synchronise_lane(lane.id());  // nothing was enqueued
  device->set_fault({0, Fault::Kind::work});
  device->copy(lane.id(), memory.data(), pinned.data(), 64, "x");
  EXPECT_THROW(device->synchronise_lane(lane.id()), DeviceError);
  device->set_fault({0, Fault::Kind::call});
  EXPECT_THROW(device->allocate(MemoryKind::device, 64), OutOfMemory);
}

}  // namespace
}  // namespace stowage::simulated
