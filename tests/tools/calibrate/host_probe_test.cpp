#include "tools/calibrate/host_probe.h"

#include <gtest/gtest.h>

#include "src/base/parallel_for.h"
#include "tests/tools/calibrate/virtual_machine.h"

namespace stowage {
namespace {

std::vector<int> threads_of(const std::vector<HostRate>& rates) {
  std::vector<int> threads;
  for (const HostRate& rate : rates) {
    EXPECT_GT(rate.bytes_per_second, 0);
    threads.push_back(rate.threads);
  }
  return threads;
}

TEST(HostProbe, DoublesTheThreadsUpToTheMost) {
  const HostProbeOptions options{.elements = 1000, .repetitions = 1, .most_threads = 6};
  EXPECT_EQ(threads_of(measure_host(options)), (std::vector<int>{1, 2, 4, 6}));
  EXPECT_EQ(threads_of(measure_host({.elements = 1000, .repetitions = 1, .most_threads = 1})),
            (std::vector<int>{1}));
}

TEST(HostProbe, UsesAndLeavesTheThreadsThatLoopsHave) {
  set_parallel_threads(3);
  EXPECT_EQ(threads_of(measure_host({.elements = 1000, .repetitions = 1})), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(parallel_threads(), 3);
  set_parallel_threads(0);
}

// In virtual time copies take what the link says, however long the one update really takes.
TEST(HostProbe, AddsUpWhatCopiesAndTheOptimizerTakeTogether) {
  const Machine machine = test::odd_machine();
  const auto device = test::open_virtual_device(machine);
  const Bytes free = device->memory_info().free;
  MachineFile file;
  file.h2d.fit = machine.h2d;
  file.d2h.fit = machine.d2h;
  const double total =
      measure_host_total(*device, {.elements = 1000, .repetitions = 1, .copied = 4_MiB}, file);
  double copies = 0;
  for (const Link& link : {machine.h2d, machine.d2h})
    copies += static_cast<double>(4_MiB) / link.seconds(4_MiB);
  EXPECT_GT(total, copies);
  EXPECT_EQ(device->memory_info().free, free);
}

}  // namespace
}  // namespace stowage
