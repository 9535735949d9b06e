#include "src/calibrate/host_probe.h"

#include <gtest/gtest.h>

#include "src/base/parallel_for.h"

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

}  // namespace
}  // namespace stowage
