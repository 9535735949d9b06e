#include "tools/calibrate/link_probe.h"

#include <gtest/gtest.h>

#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

constexpr LinkProbeOptions small{.smallest = 4_KiB, .largest = 1_MiB, .repetitions = 3};

TEST(LinkProbe, RecoversEachDirectionOfTheLink) {
  const Machine machine = test::odd_machine();
  const auto device = test::open_virtual_device(machine);
  MachineFile file;
  measure_link(*device, small, file);
  for (const auto& [curve, link] : {std::pair{&file.h2d, &machine.h2d},
                                    {&file.d2h, &machine.d2h},
                                    {&file.h2d_both, &machine.h2d},
                                    {&file.d2h_both, &machine.d2h}}) {
    EXPECT_NEAR(curve->fit.bytes_per_second / link->bytes_per_second, 1, 1e-6);
    EXPECT_NEAR(curve->fit.latency_seconds / link->latency_seconds, 1, 1e-6);
    ASSERT_EQ(curve->samples.size(), 9U);
    EXPECT_EQ(curve->samples.front().bytes, 4_KiB);
    EXPECT_EQ(curve->samples.back().bytes, 1_MiB);
    EXPECT_NEAR(curve->samples.back().seconds, link->seconds(1_MiB), 1e-9);
  }
}

TEST(LinkProbe, MovesWhatItSaysAndGivesAllMemoryBack) {
  const auto device = test::open_virtual_device(test::odd_machine());
  const Bytes free = device->memory_info().free;
  MachineFile file;
  measure_link(*device, small, file);
  EXPECT_EQ(device->memory_info().free, free);
  // Each size: one copy to warm up and three alone, and one round of three at once, each way.
  const Bytes sizes = 2_MiB - 4_KiB;
  EXPECT_EQ(device->counters().d2h_bytes, 7 * sizes);
  EXPECT_EQ(device->counters().h2d_bytes, 7 * sizes + 1_MiB);  // and the first contents of d2h's memory
}

TEST(LinkProbe, WhatWentOnAloneIsNoPartOfTheTimeBesideTheOtherWay) {
  EXPECT_EQ(seconds_beside(3, 6, 6, 1), 2);
  EXPECT_EQ(seconds_beside(3, 5, 6, 1), 5.0 / 3) << "all of it was beside the other";
  EXPECT_EQ(seconds_beside(3, 5, 4, 1), 2) << "two in 4 seconds, and one alone";
  EXPECT_EQ(seconds_beside(3, 9, 1, 1), 3) << "too little of it to tell";
}

TEST(LinkProbe, FindsTheRatesOfAThrottledLinkThatIsBusyBothWays) {
  const auto device = open_simulated_device({.h2d = {1e9, 1e-6, true},
                                             .d2h = {1e9, 1e-6, true},
                                             .h2d_both_bytes_per_second = 0.5e9,
                                             .d2h_both_bytes_per_second = 0.5e9});
  MachineFile file;
  measure_link(*device, {.smallest = 1_MiB, .largest = 8_MiB, .repetitions = 3}, file);
  // However the threads were scheduled, both ways take the time of one after the other.
  for (std::size_t i = 0; i < file.h2d.samples.size(); ++i)
    EXPECT_GE(std::max(file.h2d_both.samples[i].seconds, file.d2h_both.samples[i].seconds),
              1.3 * static_cast<double>(file.h2d.samples[i].bytes) / 1e9);
}

TEST(LinkProbe, StopsAtCopiesThatTakeTooLong) {
  Machine machine = test::odd_machine();
  machine.h2d = machine.d2h = {1e6, 1e-6, true};
  const auto device = test::open_virtual_device(machine);
  MachineFile file;
  LinkProbeOptions options = small;
  options.longest_seconds = 0.1;
  measure_link(*device, options, file);
  EXPECT_EQ(file.h2d.samples.back().bytes, 128_KiB);  // 0.13 s
  options.longest_seconds = 0;
  MachineFile least;
  measure_link(*device, options, least);
  EXPECT_EQ(least.h2d.samples.size(), 4U);  // enough for a fit
}

}  // namespace
}  // namespace stowage
