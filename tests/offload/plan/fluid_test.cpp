#include "offload/plan/fluid.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/graph/cost.h"
#include "stowage/planner.h"
#include "tests/offload/plan/slow_simulation.h"
#include "tests/support/draws.h"
#include "tests/support/quick_plan.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

// Rates of 1 everywhere; plans as literals. The gate is an op of no time behind everything.
struct Setting {
  Setting() {
    machine.flops_per_second = machine.device_bytes_per_second = machine.host_bytes_per_second = 1;
    machine.launch_seconds = 0;
    machine.h2d = machine.d2h =
        machine.peer = {.bytes_per_second = 1, .latency_seconds = 0, .throttled = true};
  }
  InstructionId copy(LaneRole lane, Bytes bytes, std::vector<Wait> waits = {}) {
    plan.buckets.emplace_back().bytes = bytes;
    const auto id = static_cast<LifetimeId>(plan.lifetimes.size());
    plan.lifetimes.push_back({.bucket = static_cast<BucketId>(plan.buckets.size() - 1)});
    const auto kind = lane == LaneRole::h2d ? InstructionKind::prefetch : InstructionKind::offload;
    return add({.kind = kind, .lane = lane, .lifetime = id, .waits = std::move(waits)});
  }
  InstructionId op(LaneRole lane, double work, std::vector<Wait> waits = {}) {
    const auto id = static_cast<OpId>(graph.ops.size());
    graph.ops.emplace_back().cost.bytes = work;
    const auto kind = lane == LaneRole::host ? InstructionKind::commit : InstructionKind::launch;
    return add({.kind = kind, .lane = lane, .op = id, .waits = std::move(waits)});
  }
  InstructionId gather(double bytes) {
    const InstructionId id = op(LaneRole::peer, 0);
    graph.ops.back().cost.peer_bytes = bytes;
    return id;
  }
  InstructionId add(Instruction instruction) {
    plan.instructions.push_back(std::move(instruction));
    return static_cast<InstructionId>(plan.instructions.size() - 1);
  }
  // Behind all that was added.
  void gate() {
    std::vector<Wait> waits;
    for (InstructionId id = 0; id < plan.instructions.size(); ++id) waits.push_back({id, 0});
    plan.gate = op(LaneRole::compute, 0, waits);
  }
  Timeline run() const { return simulate(graph, plan, machine); }

  Graph graph;
  Machine machine;
  Plan plan;
};

void expect_interval(const Interval& interval, double begin, double end) {
  EXPECT_NEAR(interval.begin, begin, 1e-12);
  EXPECT_NEAR(interval.end, end, 1e-12);
}

TEST(Fluid, TwoTransfersThatCrossGoAtTheirRatesForBothUntilOneHasEnded) {
  Setting setting;
  setting.machine.h2d_both_bytes_per_second = 0.5;
  setting.machine.d2h_both_bytes_per_second = 0.8;
  setting.copy(LaneRole::h2d, 6);
  setting.copy(LaneRole::d2h, 4);
  setting.gate();
  const Timeline timeline = setting.run();
  expect_interval(timeline.instructions[1], 0, 5);    // 4 at 0.8
  expect_interval(timeline.instructions[0], 0, 8.5);  // 2.5 in 5, then 3.5 alone
  EXPECT_NEAR(timeline.step_seconds, 8.5, 1e-12);
}

TEST(Fluid, ALatencyTakesItsLaneButSlowsNobody) {
  Setting setting;
  setting.machine.h2d_both_bytes_per_second = setting.machine.d2h_both_bytes_per_second = 0.5;
  setting.machine.h2d.latency_seconds = 2;
  setting.copy(LaneRole::h2d, 3);
  setting.copy(LaneRole::d2h, 4);
  setting.gate();
  const Timeline timeline = setting.run();
  expect_interval(timeline.instructions[1], 0, 6);  // 2 alone, 2 at 0.5
  expect_interval(timeline.instructions[0], 0, 7);  // from 2 on 2 at 0.5, then 1 alone
}

TEST(Fluid, CopiesAndTheHostStepShareHostMemoryFairly) {
  Setting setting;
  setting.machine.h2d.bytes_per_second = 2;
  setting.machine.d2h.bytes_per_second = 10;
  setting.machine.host_bytes_per_second = 10;
  setting.machine.host_total_bytes_per_second = 12;
  setting.copy(LaneRole::h2d, 10);
  setting.copy(LaneRole::d2h, 20);
  setting.op(LaneRole::host, 37);
  setting.gate();
  const Timeline timeline = setting.run();
  expect_interval(timeline.instructions[0], 0, 5);    // all it can use: less than a third
  expect_interval(timeline.instructions[1], 0, 4);    // half of the other 10
  expect_interval(timeline.instructions[2], 0, 5.7);  // 20 in 4, then 10 in 1 beside the h2d copy, 7 at 10
}

TEST(Fluid, ComputeAndTheHostStepSlowEachOtherWhereTheyUseTheSameCores) {
  Setting setting;
  setting.machine.compute_beside_host = 0.5;
  setting.machine.host_beside_compute = 0.25;
  setting.machine.compute_beside_copy = 0.8;
  setting.op(LaneRole::compute, 6);
  setting.op(LaneRole::host, 2);
  setting.copy(LaneRole::h2d, 1);
  setting.gate();
  const Timeline timeline = setting.run();
  expect_interval(timeline.instructions[2], 0, 1);
  expect_interval(timeline.instructions[1], 0, 8);
  // 0.4 in the first second, 3.5 in the next seven, the rest alone.
  expect_interval(timeline.instructions[0], 0, 8 + 6 - 0.4 - 3.5);
  EXPECT_NEAR(timeline.stall_seconds, 0, 1e-12) << "slow work is no waiting";
}

TEST(Fluid, WhatRunsOnBehindTheGateSlowsTheNextStep) {
  Setting setting;
  setting.machine.h2d_both_bytes_per_second = setting.machine.d2h_both_bytes_per_second = 0.5;
  setting.op(LaneRole::compute, 10);
  setting.copy(LaneRole::h2d, 4);
  setting.gate();
  setting.copy(LaneRole::d2h, 3);
  const Timeline timeline = setting.run();
  expect_interval(timeline.instructions[1], 0, 7);    // 3 at 0.5 beside the last step's offload, 1 more
  expect_interval(timeline.instructions[3], 10, 16);  // beside the next step's
  EXPECT_NEAR(timeline.step_seconds, 10, 1e-12);
}

TEST(Fluid, NothingComesOfWaitsInACircleOrOfRatesThatAreNone) {
  Setting setting;
  setting.machine.h2d_both_bytes_per_second = 0.5;
  setting.op(LaneRole::compute, 1, {{1, 0}});
  setting.copy(LaneRole::h2d, 1, {{0, 0}});
  setting.gate();
  const std::vector<WorkTime> work(3, WorkTime{0, 1});
  EXPECT_FALSE(simulate_fluid(setting.plan, work, LaneSpeeds(setting.machine)));
  setting.plan.instructions[0].waits.clear();
  EXPECT_TRUE(simulate_fluid(setting.plan, work, LaneSpeeds(setting.machine)));
  EXPECT_FALSE(
      simulate_fluid(setting.plan, {{0, 1}, {0, std::nan("")}, {0, 1}}, LaneSpeeds(setting.machine)));
  setting.plan.gate = no_id;
  EXPECT_FALSE(simulate_fluid(setting.plan, work, LaneSpeeds(setting.machine)));
}

// --- plans of random graphs

std::vector<WorkTime> work_of(const Graph& graph, const Plan& plan, const Machine& machine) {
  std::vector<WorkTime> work;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    const bool host = instruction.lane == LaneRole::host;
    const Link& link = instruction.lane == LaneRole::h2d ? machine.h2d : machine.d2h;
    if (instruction.op != no_id) {
      const Op& op = graph.op(instruction.op);
      const double host_bytes = host ? test::host_bytes(graph, plan, id) : 0;
      work.push_back({0, host ? host_bytes / machine.host_bytes_per_second : op_seconds(op, machine)});
    } else {
      const Bytes bytes = plan.buckets[plan.lifetimes[instruction.lifetime].bucket].bytes;
      work.push_back({link.latency_seconds, link.seconds(bytes)});
    }
  }
  return work;
}

struct Case {
  explicit Case(std::uint64_t seed)
      : graph(testing::random_graph(seed, {.max_units = 4, .max_ops_per_unit = 3})),
        machine(testing::random_machine(seed)) {
    Planner planner = testing::quick_planner(graph, machine);
    const Bytes least = planner.minimum_bytes();
    const Bytes budget = testing::random_budget(seed, least, planner.need_bytes());
    plan = std::get<Plan>(planner.answer({.device = std::max(budget, least)}).outcome);
  }
  void share(std::uint64_t seed) { machine = testing::shared_machine(seed); }
  Graph graph;
  Machine machine;
  Plan plan;
};

void expect_same(const Timeline& found, const Timeline& wanted, double tolerance) {
  const double unit = wanted.step_seconds * tolerance;
  ASSERT_NEAR(found.step_seconds, wanted.step_seconds, unit);
  ASSERT_EQ(found.instructions.size(), wanted.instructions.size());
  for (std::size_t i = 0; i < wanted.instructions.size(); ++i) {
    ASSERT_NEAR(found.instructions[i].begin, wanted.instructions[i].begin, unit) << "instruction " << i;
    ASSERT_NEAR(found.instructions[i].end, wanted.instructions[i].end, unit) << "instruction " << i;
  }
}

// Over the same link a gather and a prefetch have half of it each, until one has ended; the third is in
// nobody's way.
TEST(Fluid, PeersBytesTakeOfTheLinkTheyPassThrough) {
  for (const PeerPath path : {PeerPath::apart, PeerPath::link, PeerPath::host_memory}) {
    Setting setting;
    setting.machine.peer_path = path;
    const InstructionId copy = setting.copy(LaneRole::h2d, 10), gather = setting.gather(20);
    const InstructionId small = setting.op(LaneRole::peer, 3, {{gather, 0}});
    setting.gate();
    const Timeline timeline = setting.run();
    const bool apart = path == PeerPath::apart;
    expect_interval(timeline.instructions[copy], 0, apart ? 10 : 20);
    expect_interval(timeline.instructions[gather], 0, apart ? 20 : 30);
    expect_interval(timeline.instructions[small], apart ? 20 : 30, apart ? 23 : 33);
  }
}

// What a peer's lane computes slows no copy.
TEST(Fluid, OpsOfThePeerLaneThatBringNothingLeaveTheLinkAlone) {
  Setting setting;
  setting.machine.peer_path = PeerPath::link;
  const InstructionId copy = setting.copy(LaneRole::h2d, 10), sum = setting.op(LaneRole::peer, 10);
  setting.gate();
  const Timeline timeline = setting.run();
  expect_interval(timeline.instructions[copy], 0, 10);
  expect_interval(timeline.instructions[sum], 0, 10);
}

constexpr std::uint64_t cases = testing::draws<std::uint64_t>(100, 5);

TEST(Fluid, WhereNothingIsSharedItIsTheSimulationInThePlansOrder) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(seed);
    const Case c(seed);
    const LaneSpeeds speeds(c.machine);
    ASSERT_FALSE(speeds.shared());
    const auto fluid = simulate_fluid(c.plan, work_of(c.graph, c.plan, c.machine), speeds);
    ASSERT_TRUE(fluid);
    ASSERT_NO_FATAL_FAILURE(expect_same(*fluid, simulate(c.graph, c.plan, c.machine), 1e-12));
  }
}

TEST(Fluid, TheSlowSimulationSaysTheSame) {
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(seed);
    Case c(seed);
    c.share(seed);
    const Timeline found = simulate(c.graph, c.plan, c.machine);
    ASSERT_NO_FATAL_FAILURE(expect_same(found, test::slow_simulation(c.graph, c.plan, c.machine), 1e-9));
  }
}

TEST(Fluid, TheSlowSimulationSaysTheSameOfRanks) {
  int shared = 0;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = testing::random_graph(
        seed, {.max_units = 3, .max_ops_per_unit = 3, .share = {0, seed % 2 == 0 ? 2U : 4U}});
    const Machine machine = testing::machine_with_peers(seed);
    Planner planner = testing::quick_planner(graph, machine);
    const Bytes least = planner.minimum_bytes();
    const Plan plan = std::get<Plan>(planner.answer({.device = least + least / 8}).outcome);
    ASSERT_NO_FATAL_FAILURE(
        expect_same(simulate(graph, plan, machine), test::slow_simulation(graph, plan, machine), 1e-9));
    shared += machine.peer_path != PeerPath::apart ? 1 : 0;
  }
  EXPECT_GT(shared, 0);
}

// Bytes in, out and of host steps in a step, and what no schedule of them can be faster than.
double least_seconds(const Case& c) {
  double in = 0, out = 0, host = 0;
  for (InstructionId id = 0; id < c.plan.instructions.size(); ++id) {
    const Instruction& instruction = c.plan.instructions[id];
    if (instruction.lane == LaneRole::host) host += test::host_bytes(c.graph, c.plan, id);
    if (instruction.lifetime == no_id) continue;
    const Bytes bytes = c.plan.buckets[c.plan.lifetimes[instruction.lifetime].bucket].bytes;
    (instruction.lane == LaneRole::h2d ? in : out) += static_cast<double>(bytes);
  }
  const Machine& m = c.machine;
  const double alone_in = m.h2d.bytes_per_second, alone_out = m.d2h.bytes_per_second;
  const double both_in = m.h2d_both_bytes_per_second, both_out = m.d2h_both_bytes_per_second;
  double least = (in + out + host) / m.host_total_bytes_per_second;
  if (both_in / alone_in + both_out / alone_out < 1) return std::max(least, in / alone_in + out / alone_out);
  least = std::max(least, in / alone_in + out * (1 - both_in / alone_in) / both_out);
  return std::max(least, out / alone_out + in * (1 - both_out / alone_out) / both_in);
}

TEST(Fluid, NoInstructionIsFasterThanAloneAndNoByteGoesFree) {
  int tight = 0;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    SCOPED_TRACE(seed);
    Case c(seed);
    const double alone = simulate(c.graph, c.plan, c.machine).step_seconds;
    c.share(seed);
    const Timeline timeline = simulate(c.graph, c.plan, c.machine);
    const std::vector<WorkTime> work = work_of(c.graph, c.plan, c.machine);
    for (std::size_t i = 0; i < work.size(); ++i) {
      const Interval& interval = timeline.instructions[i];
      ASSERT_GE(interval.end - interval.begin, work[i].seconds - 1e-12 * timeline.step_seconds);
    }
    ASSERT_GE(timeline.step_seconds, alone * (1 - 1e-12));
    const double least = least_seconds(c);
    ASSERT_GE(timeline.step_seconds, least * (1 - 1e-12));
    tight += timeline.step_seconds < 1.3 * least ? 1 : 0;
  }
  EXPECT_GT(tight, 0) << "the bounds say something";
}

}  // namespace
}  // namespace stowage
