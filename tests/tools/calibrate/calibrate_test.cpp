#include "tools/calibrate/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "src/device/host_limits.h"
#include "src/device/topology.h"
#include "stowage/error.h"
#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

CalibrateOptions tiny() {
  CalibrateOptions options = quick_calibration(DeviceBackend::simulated);
  options.link.largest = 64_KiB;
  options.compute.stream_bytes = 1_MiB;
  options.compute.most_stages = 1;
  options.compute.repetitions = 1;
  options.compute.launches = 4;
  options.codec = {.elements = 1000, .repetitions = 1};
  options.host = {.elements = 1000, .repetitions = 1, .copied = 4_MiB, .most_threads = 2};
  return options;
}

TEST(Calibrate, MakesAFileThatGivesTheMachineBack) {
  const Machine machine = test::odd_machine();
  const auto device = test::open_virtual_device(machine);
  CalibrateOptions options = tiny();
  options.modelled = machine;
  const MachineFile file = calibrate(*device, cpu_launch_table(), options);

  EXPECT_EQ(file.device, device->info().name);
  EXPECT_EQ(file.backend, "simulated");
  EXPECT_EQ(file.device_bytes, 256_MiB);
  const Bytes seen = read_topology().memory(), allowed = group_memory_limit().value_or(unlimited);
  EXPECT_EQ(file.host_memory_bytes, allowed > seen && memory_may_grow(seen) ? 0 : std::min(seen, allowed));
  EXPECT_THAT(file.measured, ::testing::MatchesRegex("20..-..-..T..:..:..Z"));

  const Machine found = machine_for(machine_from_json(to_json(file)), DataType::f32);
  EXPECT_NEAR(found.h2d.bytes_per_second / machine.h2d.bytes_per_second, 1, 1e-6);
  EXPECT_NEAR(found.d2h.latency_seconds / machine.d2h.latency_seconds, 1, 1e-6);
  EXPECT_NEAR(found.flops_per_second / machine.flops_per_second, 1, 0.01);
  EXPECT_NEAR(found.device_bytes_per_second / machine.device_bytes_per_second, 1, 0.01);
  EXPECT_NEAR(found.launch_seconds / machine.launch_seconds, 1, 0.05);
  EXPECT_EQ(device->memory_info().free, device->memory_info().total);
}

TEST(Calibrate, CountsTheArraysOfTheCodecAsHostMemory) {
  CalibrateOptions options = tiny();
  options.codec.elements = std::int64_t{1} << 30U;  // 8 GiB, and codes of 8 bits
  EXPECT_GT(host_bytes_of(options, DeviceBackend::simulated), 9_GiB);
  EXPECT_LT(host_bytes_of(options, DeviceBackend::cuda), 1_GiB);
}

TEST(Calibrate, MeasuresAThreadedDevice) {
  const auto device = open_simulated_device({.capacity = unlimited});
  const MachineFile file = calibrate(*device, cpu_launch_table(), tiny());
  EXPECT_EQ(file.device_bytes, 0U);   // as much as the host gives
  ASSERT_EQ(file.matrix.size(), 2U);  // f32 and bf16
  EXPECT_EQ(file.host_rates.size(), 2U);
  std::set<std::pair<DataType, CodeBits>> coded;
  for (const CodecRate& rate : file.codec) {
    EXPECT_GT(rate.rates.encode_bytes_per_second, 0);
    EXPECT_GT(rate.rates.decode_bytes_per_second, 0);
    coded.emplace(rate.type, rate.bits);
  }
  EXPECT_EQ(coded, (std::set<std::pair<DataType, CodeBits>>{{DataType::f32, CodeBits::four},
                                                            {DataType::f32, CodeBits::eight},
                                                            {DataType::bf16, CodeBits::four},
                                                            {DataType::bf16, CodeBits::eight}}));
  EXPECT_NO_THROW(machine_from_json(to_json(file)));
}

// Every call that can fail fails once: the error comes out and no memory stays behind.
TEST(Calibrate, AFailedCallLeavesNothingBehind) {
  const LaunchTable kernels = cpu_launch_table();
  CalibrateOptions options = tiny();
  options.link.largest = 8_KiB;
  options.link.repetitions = 1;
  options.compute.stream_bytes = 4_KiB;
  options.compute.types = {};
  options.codec.elements = 100;
  const auto device = test::open_virtual_device(test::odd_machine());
  device->reset_counters();
  calibrate(*device, kernels, options);
  const std::uint64_t calls = device->counters().calls;
  ASSERT_GT(calls, 100U);
  for (std::uint64_t index = 0; index < calls; index += 7) {
    device->clear_fault();
    device->set_fault({index, index % 2 == 0 ? Fault::Kind::call : Fault::Kind::work});
    try {
      calibrate(*device, kernels, options);
    } catch (const DeviceError&) {
    } catch (const OutOfMemory&) {
    }
    EXPECT_TRUE(device->fault_fired()) << index;
    device->clear_fault();
    EXPECT_EQ(device->memory_info().free, device->memory_info().total) << "call " << index;
  }
}

}  // namespace
}  // namespace stowage
