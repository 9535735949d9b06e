// Device calls that fail under the caching allocator: a request may fail with a typed error, but nothing is
// lost.
#include <gtest/gtest.h>

#include "stowage/simulated_device.h"
#include "tests/allocator/random_program.h"

namespace stowage {
namespace {

constexpr Bytes capacity = 64_MiB;

// One run; returns how many of the allocator's device calls there were.
std::uint64_t run(int steps, std::uint64_t seed, const std::function<bool(std::uint64_t)>& fails,
                  std::uint64_t* failures, bool plans = false) {
  const auto simulated = open_simulated_device(
      {.capacity = capacity, .executor = Executor::virtual_time, .poison = Poison::none});
  DeviceDecorator device(*simulated);
  std::uint64_t calls = 0;
  {
    CachingAllocator allocator(device, {.plan_periods = plans});
    RandomProgram program(*simulated, allocator,
                          {.lanes = 3,
                           .most_block = 20_MiB,
                           .seed = seed,
                           .period = plans ? 25U : 0U,
                           .deviates = plans ? 50U : 0U});
    device.is_slow = [&] { return calls % 3 != 0; };
    device.fails = [&](const std::string&) { return fails(calls++); };
    for (int i = 0; i < steps; ++i) {
      program.step();
      if (i % 16 == 0) program.check();
    }
    device.fails = nullptr;
    program.check();
    program.release_all();
    program.check();
    *failures += program.failures();
    // Nothing was lost: all of it comes back, and all of it can be had in one piece.
    allocator.trim();
    EXPECT_EQ(allocator.statistics().reserved, 0u);
    EXPECT_EQ(simulated->memory_info().free, capacity);
    allocator.release_raw(allocator.allocate_raw(capacity, program.lane(0)));
    EXPECT_EQ(device.violations, 0u);
    EXPECT_EQ(allocator.statistics().planned.hits > 0, plans);
  }
  EXPECT_EQ(simulated->memory_info().free, capacity);
  return calls;
}

TEST(CachingAllocatorFaults, WithoutAnyNothingFailsThatFits) {
  std::uint64_t failures = 0;
  EXPECT_GT(run(
                2000, 1, [](std::uint64_t) { return false; }, &failures),
            1000u);
  EXPECT_LT(failures, 20u);  // most_live leaves room but for fragments
}

TEST(CachingAllocatorFaults, EveryCallFailsOnce) {
  std::uint64_t failures = 0;
  for (std::uint64_t index = 0;; ++index) {
    const std::uint64_t calls = run(
        100, 2, [&](std::uint64_t call) { return call == index; }, &failures);
    ASSERT_FALSE(testing::Test::HasFailure()) << "call " << index;
    if (calls <= index) {
      EXPECT_GT(index, 50u);
      break;
    }
  }
}

TEST(CachingAllocatorFaults, EveryCallFailsOnceWherePlansServe) {
  std::uint64_t failures = 0;
  for (std::uint64_t index = 0;; ++index) {
    const std::uint64_t calls = run(
        125, 4, [&](std::uint64_t call) { return call == index; }, &failures, true);
    ASSERT_FALSE(testing::Test::HasFailure()) << "call " << index;
    if (calls <= index) {
      EXPECT_GT(index, 50u);
      break;
    }
  }
}

TEST(CachingAllocatorFaults, EveryTenthCallFailsWherePlansServe) {
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    run(
        1500, seed, [](std::uint64_t call) { return call % 10 == 9; }, &failures, true);
}

TEST(CachingAllocatorFaults, EveryTenthCallFails) {
  std::uint64_t failures = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed)
    run(
        1500, seed, [](std::uint64_t call) { return call % 10 == 9; }, &failures);
}

TEST(CachingAllocatorFaults, HalfOfAllCallsFail) {
  std::uint64_t failures = 0;
  std::mt19937 random(3);
  run(
      1500, 5, [&](std::uint64_t) { return random() % 2 == 0; }, &failures);
  EXPECT_GT(failures, 0u);
}

}  // namespace
}  // namespace stowage
