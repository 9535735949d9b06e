#include "samples/options/schedule.h"

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

TEST(Schedule, FallsInALine) {
  const Schedule schedule = {
      .peak = 2, .warmup = 3, .steps = 10, .descent = Descent::linear, .final_share = 0.25};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 0), 0.5);
  for (std::uint64_t step = 3; step < 10; ++step)
    EXPECT_DOUBLE_EQ(learning_rate(schedule, step), 2 - 1.5 * static_cast<double>(step - 3) / 6);
}

TEST(Schedule, StaysWhereItIs) {
  const Schedule schedule = {
      .peak = 2, .warmup = 3, .steps = 10, .descent = Descent::constant, .final_share = 0.25};
  EXPECT_DOUBLE_EQ(learning_rate(schedule, 2), 1.5);
  for (std::uint64_t step = 3; step < 12; ++step) EXPECT_EQ(learning_rate(schedule, step), 2);
}

TEST(Schedule, MayFallToNothingOrRise) {
  for (const Descent descent : {Descent::cosine, Descent::linear}) {
    Schedule schedule = {.peak = 2, .warmup = 0, .steps = 5, .descent = descent, .final_share = 0};
    EXPECT_EQ(learning_rate(schedule, 0), 2);
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 2), 1);
    EXPECT_EQ(learning_rate(schedule, 4), 0);
    EXPECT_EQ(learning_rate(schedule, 1000), 0);  // of a run that was given more steps
    schedule.final_share = 1;
    EXPECT_DOUBLE_EQ(learning_rate(schedule, 3), 2);
  }
}

TEST(Schedule, HasNames) {
  for (const Descent descent : every_descent) EXPECT_EQ(descent_from(to_string(descent)), descent);
  EXPECT_EQ(descent_from("linear"), Descent::linear);
  EXPECT_FALSE(descent_from("square"));
}

TEST(Schedule, ShortRuns) {
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 1, .warmup = 0, .steps = 1}, 0), 1);
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 1, .warmup = 3, .steps = 2}, 1), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate({.peak = 1, .warmup = 1, .steps = 2}, 1), 1);
}

}  // namespace
}  // namespace stowage::samples
