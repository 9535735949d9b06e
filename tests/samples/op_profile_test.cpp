#include "samples/op_profile.h"

#include <gtest/gtest.h>

namespace stowage::samples {
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
  profile.add(op_of("linear", 10, 2), 3);
  profile.add(op_of("linear", 10, 2), 5);
  profile.add(op_of("linear", 10, 3), 100);
  EXPECT_EQ(profile.seconds(op_of("linear", 10, 2), unit_machine()), 4);
}

TEST(OpProfile, AnotherOpOfItsKernelIsAsFastForWhatItCosts) {
  OpProfile profile;
  profile.add(op_of("linear", 9, 2), 15);  // 10 by the rates
  profile.add(op_of("linear", 1, 4), 15);  // 5
  profile.add(op_of("add", 1, 99), 1);
  EXPECT_EQ(profile.seconds(op_of("linear", 19, 2), unit_machine()), 40);
}

TEST(OpProfile, OfAKernelThatWasNotMeasuredTheRatesDecide) {
  EXPECT_EQ(OpProfile().seconds(op_of("other", 19, 20), unit_machine()), 21);
}

TEST(OpProfile, SetsEveryOpOfAGraph) {
  Graph graph;
  graph.ops = {op_of("linear", 1, 1), op_of("add", 1, 3)};
  OpProfile profile;
  profile.add(graph.ops[0], 7);
  set_seconds(profile, unit_machine(), graph);
  EXPECT_EQ(graph.ops[0].cost.seconds, 7);
  EXPECT_EQ(graph.ops[1].cost.seconds, 4);
}

}  // namespace
}  // namespace stowage::samples
