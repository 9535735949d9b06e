#include "tools/calibrate/peer_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stowage/error.h"
#include "tests/support/expect_refused.h"
#include "tests/tools/calibrate/virtual_machine.h"
#include "tools/calibrate/link_probe.h"

namespace stowage {
namespace {

constexpr PeerProbeOptions small{
    .smallest = 4_KiB, .largest = 1_MiB, .repetitions = 3, .piece = 64_KiB, .copies = 4};

// Devices alike.
struct Machines {
  explicit Machines(std::size_t count, const Machine& machine = test::odd_machine()) {
    for (std::size_t i = 0; i < count; ++i) {
      opened.push_back(test::open_virtual_device(machine));
      all.push_back(opened.back().get());
    }
    measure_link(*all.front(), {.smallest = 4_KiB, .largest = 1_MiB, .repetitions = 3}, file);
  }
  std::vector<std::unique_ptr<SimulatedDevice>> opened;
  std::vector<Device*> all;
  MachineFile file;
};

TEST(PeerProbe, RecoversTheLinkBetweenDevicesAndTheirLinksToTheHost) {
  const Machine machine = test::odd_machine();
  const Link peer{3e9, 13e-6, true};
  for (const std::size_t count : {2U, 3U, 4U}) {
    Machines machines(count);
    const PeerDevices found = measure_peers(machines.all, {.peer = peer}, small, machines.file);
    EXPECT_EQ(found.devices, static_cast<int>(count));
    EXPECT_EQ(found.devices_per_host_memory, static_cast<int>(count));
    EXPECT_EQ(found.path, PeerPath::apart);
    EXPECT_NEAR(found.link.bytes_per_second / peer.bytes_per_second, 1, 1e-6);
    EXPECT_NEAR(found.link.latency_seconds / peer.latency_seconds, 1, 1e-6);
    for (const auto& samples : {found.gathers, found.exchanges}) {
      ASSERT_EQ(samples.size(), 9U);
      for (const CopySample& sample : samples) {
        EXPECT_EQ(sample.bytes % ((count - 1) * 256), 0U) << "what one receives from the others";
        EXPECT_NEAR(sample.seconds / peer.seconds(sample.bytes), 1, 1e-6);
      }
    }
    ASSERT_TRUE(found.together);
    for (const auto& [rate, link] :
         {std::pair{found.together->h2d, machine.h2d}, std::pair{found.together->d2h, machine.d2h},
          std::pair{found.together->h2d_both, machine.h2d}, std::pair{found.together->d2h_both, machine.d2h}})
      EXPECT_NEAR(rate / link.bytes_per_second, 1, 1e-6);
  }
}

TEST(PeerProbe, GathersThatSlowCopiesTakeTheLinkToTheHost) {
  EXPECT_EQ(path_of(1, 1, 1.1, 1), PeerPath::apart);
  EXPECT_EQ(path_of(1, 1, 1.9, 1), PeerPath::link);
  EXPECT_EQ(path_of(1, 0.2, 1.02, 1), PeerPath::apart) << "hardly beside each other";
  EXPECT_EQ(path_of(1, 0.2, 1.2, 1), PeerPath::link);
  EXPECT_EQ(path_of(1, 1, 1.4, 0.4), PeerPath::link) << "gathers that need two fifths of the link";
  EXPECT_EQ(path_of(1, 1, 1.1, 0.4), PeerPath::apart);
  EXPECT_EQ(path_of(1, 1, 1.4, 3), PeerPath::apart) << "faster than the link could be";
}

// One device's link is slower than the others': all wait for it.
TEST(PeerProbe, TheSlowestLinkCounts) {
  Machines machines(2);
  Machine slow = test::odd_machine();
  slow.h2d.bytes_per_second = 1e9;
  machines.opened.push_back(test::open_virtual_device(slow));
  machines.all.push_back(machines.opened.back().get());
  const PeerDevices found = measure_peers(machines.all, {.peer = slow.d2h}, small, machines.file);
  ASSERT_TRUE(found.together);
  EXPECT_NEAR(found.together->h2d / 1e9, 1, 0.01);
  EXPECT_NEAR(found.together->h2d_both / 1e9, 1, 0.01);
  EXPECT_NEAR(found.together->d2h / slow.d2h.bytes_per_second, 1, 1e-6);
}

// In real time: no copy and no collective is faster than its link.
TEST(PeerProbe, MeasuresThreadedDevices) {
  const Link link{1e9, 1e-5, true};
  std::vector<std::unique_ptr<SimulatedDevice>> opened;
  std::vector<Device*> all;
  for (int i = 0; i < 2; ++i) {
    opened.push_back(open_simulated_device({.h2d = link, .d2h = link}));
    all.push_back(opened.back().get());
  }
  const Bytes free = opened[0]->memory_info().free;
  MachineFile file;
  measure_link(*all[0], {.smallest = 64_KiB, .largest = 512_KiB, .repetitions = 1}, file);
  const PeerDevices found = measure_peers(all, {.peer = link}, small, file);
  for (const auto& samples : {found.gathers, found.exchanges})
    for (const CopySample& sample : samples) EXPECT_GE(sample.seconds, 0.99 * link.seconds(sample.bytes));
  EXPECT_GT(found.together->h2d, 0);
  for (const auto& device : opened) EXPECT_EQ(device->memory_info().free, free);
}

TEST(PeerProbe, StopsAtWholesThatTakeTooLong) {
  Machines machines(2);
  PeerProbeOptions options = small;
  options.longest_seconds = 0;
  const PeerDevices found = measure_peers(machines.all, {.peer = {1e6, 0, true}}, options, machines.file);
  EXPECT_EQ(found.gathers.size(), 4U) << "enough for a fit";
}

// Whichever call fails on one device: the error comes out, nobody waits for ever and no memory stays behind.
TEST(PeerProbe, AFailedCallLeavesNothingBehind) {
  PeerProbeOptions options = small;
  options.largest = 32_KiB;
  options.repetitions = 1;
  Machines machines(2);
  SimulatedDevice& second = *machines.opened[1];
  const auto measured = [&] { return measure_peers(machines.all, {}, options, machines.file); };
  second.reset_counters();
  measured();
  const std::uint64_t calls = second.counters().calls;
  ASSERT_GT(calls, 100U);
  for (std::uint64_t index = 0; index < calls; index += 5) {
    second.set_fault({index, index % 2 == 0 ? Fault::Kind::call : Fault::Kind::work});
    try {
      measured();
    } catch (const DeviceError&) {
    } catch (const OutOfMemory&) {
    } catch (const CommunicatorError&) {
    }
    EXPECT_TRUE(second.fault_fired()) << index;
    second.clear_fault();
    for (const auto& device : machines.opened)
      EXPECT_EQ(device->memory_info().free, device->memory_info().total) << "call " << index;
  }
}

TEST(PeerProbe, RefusesDevicesThatCannotReachEachOther) {
  Machines machines(1);
  machines.all.push_back(machines.all.front());
  test::expect_refused([&] { measure_peers(machines.all, {}, small, machines.file); }, "was given before");
}

}  // namespace
}  // namespace stowage
