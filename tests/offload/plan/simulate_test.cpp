#include <gtest/gtest.h>

#include "stowage/planner.h"

namespace stowage {
namespace {

// Two ops, a load before the first and a store after it, the gate and one update: every rate is 1.
struct Setting {
  Setting() {
    machine.flops_per_second = machine.device_bytes_per_second = machine.host_bytes_per_second = 1;
    machine.launch_seconds = 0;
    machine.h2d = machine.d2h = {.bytes_per_second = 1, .latency_seconds = 0.5, .throttled = true};
    for (double flops : {3.0, 2.0}) add_op({.flops = flops, .bytes = 0});
    for (double bytes : {1.0, 4.0}) add_op({.flops = 0, .bytes = bytes});
    plan.buckets = {Bucket{}, Bucket{}};
    plan.buckets[0].bytes = 2;
    plan.buckets[1].bytes = 1;
    plan.lifetimes = {Lifetime{.bucket = 0}, Lifetime{.bucket = 1}};
    plan.instructions = {
        {.kind = InstructionKind::prefetch, .lane = LaneRole::h2d, .lifetime = 0, .waits = {{5, 1}}},
        {.kind = InstructionKind::launch, .lane = LaneRole::compute, .op = 0, .waits = {{0, 0}}},
        {.kind = InstructionKind::offload, .lane = LaneRole::d2h, .lifetime = 1, .waits = {{1, 0}}},
        {.kind = InstructionKind::launch, .lane = LaneRole::compute, .op = 1},
        {.kind = InstructionKind::gate, .lane = LaneRole::host, .op = 2, .waits = {{2, 0}}},
        {.kind = InstructionKind::commit, .lane = LaneRole::host, .op = 3},
    };
    plan.gate = 4;
  }
  void add_op(OpCost cost) {
    graph.ops.emplace_back();
    graph.ops.back().cost = cost;
  }
  Graph graph;
  Machine machine;
  Plan plan;
};

TEST(Simulate, TheSteadyStepIsTheCycleThroughTheUpdateTheLoadAndTheGate) {
  Setting setting;
  Timeline timeline = simulate(setting.graph, setting.plan, setting.machine);
  // From gate to gate: update 4, load 2.5, op 3, store 1.5, gate 1.
  EXPECT_DOUBLE_EQ(timeline.step_seconds, 12.0);
  EXPECT_DOUBLE_EQ(timeline.stall_seconds, 7.0);
  EXPECT_DOUBLE_EQ(timeline.instructions[0].begin, 4.0);
  EXPECT_DOUBLE_EQ(timeline.instructions[1].begin, 6.5);
  EXPECT_DOUBLE_EQ(timeline.instructions[3].begin, 9.5);  // beside the store
  EXPECT_DOUBLE_EQ(timeline.instructions[4].end, 12.0);
  EXPECT_DOUBLE_EQ(timeline.instructions[5].end, 16.0);  // into the next step
}

TEST(Simulate, WithoutTheWaitOnTheUpdateTheLoadStartsAtTheGate) {
  Setting setting;
  setting.plan.instructions[0].waits.clear();
  Timeline timeline = simulate(setting.graph, setting.plan, setting.machine);
  EXPECT_DOUBLE_EQ(timeline.instructions[0].begin, 0.0);
  EXPECT_DOUBLE_EQ(timeline.step_seconds, 8.0);
}

}  // namespace
}  // namespace stowage
