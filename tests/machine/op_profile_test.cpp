#include "src/machine/op_profile.h"

#include <gtest/gtest.h>

#include <cmath>

namespace stowage {
namespace {

Op op_of(const char* kernel, double flops, double bytes) {
  Op op;
  op.kernel = kernel;
  op.cost = {flops, bytes};
  return op;
}

Machine unit_machine() {
  Machine machine;
  machine.flops_per_second = machine.device_bytes_per_second = 1;
  machine.launch_seconds = 1;
  return machine;
}

TEST(OpProfile, AnOpThatWasMeasuredTakesTheMeanOfItsTimes) {
  OpProfile profile;
  profile.add("linear", {10, 2}, 3);
  profile.add("linear", {10, 2}, 5);
  profile.add("linear", {10, 3}, 100);
  EXPECT_EQ(profile.seconds(op_of("linear", 10, 2), unit_machine()), 4);
}

TEST(OpProfile, AnotherOpOfItsKernelIsAsFastForWhatItCosts) {
  OpProfile profile;
  profile.add("linear", {9, 2}, 20);  // 10 by the rates
  profile.add("linear", {1, 4}, 10);  // 5
  profile.add("add", {1, 99}, 1);
  EXPECT_DOUBLE_EQ(profile.seconds(op_of("linear", 19, 2), unit_machine()), 40);
}

TEST(OpProfile, OpsOfLikeSizeSayMost) {
  OpProfile profile;
  profile.add("linear", {9, 9}, 40);      // four times what the rates say
  profile.add("linear", {9999, 9}, 1e4);  // as much
  const Machine machine = unit_machine();
  EXPECT_NEAR(profile.seconds(op_of("linear", 10, 9), machine), 44, 0.1);
  EXPECT_NEAR(profile.seconds(op_of("linear", 9998, 9), machine), 9999, 1);
  const double between = profile.seconds(op_of("linear", std::sqrt(10 * 1e4) - 1, 9), machine);
  EXPECT_NEAR(between, 2 * std::sqrt(10 * 1e4), 1e-6);
}

TEST(OpProfile, OfAKernelThatWasNotMeasuredTheRatesDecide) {
  EXPECT_EQ(OpProfile().seconds(op_of("other", 19, 20), unit_machine()), 21);
}

TEST(OpProfile, TheCodecsRatesDecideUntilItsKernelIsMeasured) {
  Machine machine = unit_machine();
  machine.codec_4_bits = {0.25, 0.5};
  Op op = op_of("encode", 0, 20);
  op.attributes = {{"bits", std::int64_t{4}}};
  OpProfile profile;
  profile.add("decode", {0, 20}, 1000);
  EXPECT_EQ(profile.seconds(op, machine), 81);
  op.cost.seconds = 5;  // not a time of this profile
  EXPECT_EQ(profile.seconds(op, machine), 81);
  profile.add("encode", {0, 40}, 410);  // ten times what device memory takes
  EXPECT_DOUBLE_EQ(profile.seconds(op, machine), 210);
}

// Their time is the peer link's, which no profile knows.
TEST(OpProfile, LeavesOpsThatWaitForPeersToTheRates) {
  Graph graph;
  graph.ops = {op_of("gather", 0, 3), op_of("other", 0, 3)};
  graph.ops[0].cost.peer_bytes = 5;
  set_seconds(OpProfile(), unit_machine(), graph);
  EXPECT_FALSE(graph.ops[0].cost.seconds);
  EXPECT_TRUE(graph.ops[1].cost.seconds);
}

TEST(OpProfile, SetsEveryOpThatHasNoTimeOfItsOwn) {
  Graph graph;
  graph.ops = {op_of("linear", 1, 1), op_of("add", 1, 3), op_of("add", 1, 3)};
  graph.ops[2].cost.seconds = 5;
  OpProfile profile;
  profile.add("linear", {1, 1}, 7);
  set_seconds(profile, unit_machine(), graph);
  EXPECT_EQ(graph.ops[0].cost.seconds, 7);
  EXPECT_EQ(graph.ops[1].cost.seconds, 4);
  EXPECT_EQ(graph.ops[2].cost.seconds, 5);
}

}  // namespace
}  // namespace stowage
