// The simulated device as the judge of reuse: every byte of every block is written on its lane as soon as it
// is there, and each write must be ordered after what any lane did to these bytes before.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "stowage/simulated_device.h"
#include "tests/allocator/random_program.h"

namespace stowage {
namespace {

constexpr Bytes capacity = 64_MiB;

// STOWAGE_RACE_OPERATIONS asks for another number than what a test run has time for.
std::uint64_t operations() {
  const char* const asked = std::getenv("STOWAGE_RACE_OPERATIONS");
  return asked == nullptr ? 30000 : std::stoull(asked);
}

class CachingAllocatorRaces : public testing::Test {
 protected:
  std::unique_ptr<SimulatedDevice> simulated = open_simulated_device(
      {.capacity = capacity, .executor = Executor::virtual_time, .poison = Poison::none});
  DeviceDecorator device{*simulated};
  CachingAllocator allocator{device};
  std::mt19937 random{7};

  void run(RandomProgram& program, std::uint64_t steps) {
    for (std::uint64_t i = 0; i < steps; ++i) {
      program.step();
      if (i % 4096 == 0) program.check();
      ASSERT_FALSE(HasFatalFailure()) << "operation " << i;
    }
    program.check();
    EXPECT_EQ(device.violations, 0u);
  }
};

TEST_F(CachingAllocatorRaces, NoBlockIsReusedBeforeItsLastUseOnAnyStream) {
  device.is_slow = [&] { return random() % 16 != 0; };
  RandomProgram program(*simulated, allocator, {.range = device.reserved});
  run(program, operations());
  EXPECT_GT(device.waits, operations() / 100);
}

TEST_F(CachingAllocatorRaces, NorWhereMemoryIsShort) {
  device.is_slow = [&] { return random() % 4 != 0; };
  RandomProgram program(*simulated, allocator,
                        {.most_live = 62_MiB, .most_block = 32_MiB, .seed = 2, .range = device.reserved});
  run(program, operations() / 2);
  EXPECT_GT(device.unmaps, 100u);
  EXPECT_GT(program.failures(), 5u);  // each of which no placing would have served
}

// Iterations that come again but for one step in 200, on 8 streams.
TEST_F(CachingAllocatorRaces, NorWherePlansServe) {
  CachingAllocator planning(device, {.plan_periods = true});
  device.is_slow = [&] { return random() % 4 != 0; };
  RandomProgram program(
      *simulated, planning,
      {.most_live = 40_MiB, .seed = 3, .period = 200, .deviates = 200, .range = device.reserved});
  run(program, operations());
  const PlanStatistics planned = planning.statistics().planned;
  EXPECT_GT(planned.hits, operations() / 8);
  EXPECT_GT(planned.misses, operations() / 1000);
  EXPECT_GT(planned.plans, 3u);
  EXPECT_GT(device.waits, operations() / 100);
}

TEST_F(CachingAllocatorRaces, WaitsThatAreLostAreCaught) {
  device.is_slow = [] { return true; };
  // One at a time, each in a program that is the same up to there.
  int caught = 0;
  for (std::uint64_t lost = 0; lost < 20; ++lost) {
    const auto fresh = open_simulated_device(
        {.capacity = capacity, .executor = Executor::virtual_time, .poison = Poison::none});
    DeviceDecorator between(*fresh);
    between.is_slow = [] { return true; };
    between.loses_wait = [&] { return between.waits == lost + 1; };
    CachingAllocator judged(between);
    RandomProgram program(*fresh, judged, {.crosses_lanes = false});
    try {
      for (int i = 0; i < 1000 && between.waits <= lost + 3; ++i) program.step();
    } catch (const AccessViolation&) {
      ++caught;
    }
  }
  // Others are implied by waits before them.
  EXPECT_GE(caught, 15);
}

}  // namespace
}  // namespace stowage
