#include "samples/schedule.h"

#include <gtest/gtest.h>

namespace stowage::samples {
namespace {

TEST(Schedule, RisesThenFallsToATenth) {
  const Schedule schedule = {.peak = 2, .warmup = 3, .steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 1), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 2), 1.5);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 3), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 6), 2 * (0.1 + 0.9 * 0.5));  // half-way down
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 9), 0.2);
  for (std::uint64_t step = 3; step < 9; ++step) {
    EXPECT_GT(learning_rate(schedule, step), learning_rate(schedule, step + 1));
  }
}

TEST(Schedule, ShortRuns) {
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 1, .warmup = 0, .steps = 1}, 0), 1);
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 1, .warmup = 3, .steps = 2}, 1), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 1, .warmup = 1, .steps = 2}, 1), 1);
}

}  // namespace
}  // namespace stowage::samples
