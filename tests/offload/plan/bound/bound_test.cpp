#include "offload/plan/bound/bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "stowage/planner.h"
#include "tests/support/chain_graph.h"
#include "tests/support/draws.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

// Forward: embed, 2 units of 2 ops, head. Backward: head, 2 units of 3 ops (one op more in the second).
struct Setting {
  explicit Setting(Graph of = testing::chain_graph({.units = 2,
                                                    .activation_elements = 1,
                                                    .parameter_elements = 1000,
                                                    .op_flops = 1,
                                                    .undoable = false}))
      : graph(std::move(of)) {
    machine.flops_per_second = 1;
    machine.device_bytes_per_second = 1e30;
    machine.launch_seconds = 0;
    machine.h2d = machine.d2h = {.bytes_per_second = 1e30, .latency_seconds = 0, .throttled = true};
    machine.host_bytes_per_second = 1e30;
  }
  StepBound bound(Bytes device, Bytes host = unlimited) const {
    return lower_bound(make_problem(graph, machine, {.target_bytes = 0}), {device, host});
  }
  Graph graph;  // state: 2 parameters * 3 tensors * 4000 bytes
  Machine machine;
};

TEST(Bound, WithAllTheMemoryItIsTheArithmetic) {
  Setting setting;
  const StepBound bound = setting.bound(unlimited);
  EXPECT_NEAR(bound.seconds, 6 + 8, 1e-3);
  EXPECT_EQ(bound.bound_by, "compute");
}

// A resident parameter takes 12000 bytes with its state. They are there beside W0's gradient while that is
// made, and beside the parameter's own gradient behind that, so two thirds of one parameter fit. What is left
// of the 8000 bytes of gradients must leave, and as many bytes of parameters come in. The gradients are not
// made in backward's first two ops.
TEST(Bound, StateThatCannotStayMustCrossAfterBackwardAndBeforeForwardEnds) {
  Setting setting;
  setting.machine.d2h.bytes_per_second = 100;
  const double stays = (12000. - 4008) / 12000;
  StepBound bound = setting.bound(12000);
  EXPECT_NEAR(bound.seconds, 2 + 40 * (2 - stays) + 6 + stays, 0.01);
  EXPECT_EQ(bound.bound_by, "d2h");
  // W1 comes in for backward, too, or is held from its first use to its last, beside W1's gradient while that
  // is made. A tenth of what stays away has time to come in twice: beside the gradients that leave, and
  // during those two ops. In thousands of bytes: 12 r0 + 8 r1 + 4 (1 - 0.005 - a tenth of 2 - r0 - r1) and 12
  // r0 + 16 r1 have 7.992 of room.
  setting.machine.h2d.bytes_per_second = 10;
  bound = setting.bound(12000);
  const double both_stay = (4.812 + 7.992) / 24.4;
  EXPECT_NEAR(bound.seconds, 2 + (400 + 40) * (2 - both_stay), 0.01);
  EXPECT_EQ(bound.bound_by, "h2d");
}

TEST(Bound, HostMemoryBindsWhenTheOptimizerIsSlow) {
  Setting setting;
  setting.machine.host_bytes_per_second = 28000;         // each update moves 28000 bytes
  EXPECT_NEAR(setting.bound(4100).seconds, 6 + 8, 0.1);  // 2 s of updates hide behind 6 s of forward
  setting.machine.host_bytes_per_second = 2800;
  const StepBound bound = setting.bound(4100);
  EXPECT_NEAR(bound.seconds, 8 + 20 + 2, 0.1);  // two ops of forward stand behind W1's
  EXPECT_EQ(bound.bound_by, "host");
}

// Forward turns into backward at the last unit's largest op, which here runs behind the op that makes W1's
// gradient. So the host may update W1 before the turn, however long that takes, and only W0's update counts
// behind the turn.
TEST(Bound, AnEarlyUpdateBeforeTheTurnIsFree) {
  const auto bound = [](double seconds_of_w1, double seconds_of_w0) {
    Setting setting(testing::chain_graph(
        {.units = 2, .activation_elements = 1, .parameter_elements = 1000, .op_flops = 1}));
    Graph& graph = setting.graph;
    const auto op = [&](const char* name) -> Op& { return graph.ops[testing::find_op(graph, name)]; };
    op("head").unit = op("head.backward").unit = op("a1").unit;
    graph.tensors.push_back({"work", DataType::f32, {4000}, TensorKind::workspace, {}});
    op("a.input1").writes.push_back(static_cast<TensorId>(graph.tensors.size() - 1));
    setting.machine.host_bytes_per_second = 28000;
    op("adamw1").cost.bytes = 28000 * seconds_of_w1;
    op("adamw0").cost.bytes = 28000 * seconds_of_w0;
    const Problem problem = make_problem(graph, setting.machine, {.target_bytes = 0},
                                         MicroBatchOrder::layer_major, {}, EarlyUpdates::final);
    return lower_bound(problem, {20100, unlimited}).seconds;
  };
  const double free = bound(0, 0);
  EXPECT_NEAR(bound(1000, 0), free, 0.1);
  EXPECT_GT(bound(0, 1000), free + 900);
}

// Both parameters come in for forward through the memory in which they are updated. If they did not, the two
// ops behind W1's would come on top of the updates.
TEST(Bound, CopiesAndUpdatesShareHostMemory) {
  Setting setting;
  setting.machine.host_bytes_per_second = 2800;
  const double apart = setting.bound(4100).seconds;
  setting.machine.host_total_bytes_per_second = 2800;
  const StepBound shared = setting.bound(4100);
  EXPECT_NEAR(shared.seconds, apart - 2 + 8000. / 2800, 0.05);
  EXPECT_EQ(shared.bound_by, "host memory");
}

// Each direction has half its speed while the other one moves, so bytes that go both ways in backward take as
// long as one way after the other.
TEST(Bound, DirectionsOfTheLinkShareIt) {
  Setting setting;
  setting.machine.h2d.bytes_per_second = setting.machine.d2h.bytes_per_second = 10;
  const double apart = setting.bound(8000).seconds;
  setting.machine.h2d_both_bytes_per_second = setting.machine.d2h_both_bytes_per_second = 5;
  const double shared = setting.bound(8000).seconds;
  EXPECT_GT(shared, 1.06 * apart);
  setting.machine.h2d_both_bytes_per_second = setting.machine.d2h_both_bytes_per_second = 9.9;
  EXPECT_GT(setting.bound(8000).seconds, apart);
  EXPECT_LT(setting.bound(8000).seconds, 1.02 * apart);
}

// Three units leave two activations each, and there is room for none of them beside the head's operands.
TEST(Bound, ActivationsThatCannotStayCrossTwiceOrAreMadeAgain) {
  Setting setting(testing::chain_graph(
      {.units = 3, .activation_elements = 1 << 20, .parameter_elements = 1, .op_flops = 1}));
  setting.machine.h2d.bytes_per_second = setting.machine.d2h.bytes_per_second = 1;
  const double arithmetic = setting.bound(unlimited).seconds;
  const Bytes tight = 3 * sizeof(float) << 20U;
  const double made_again = setting.bound(tight).seconds;
  EXPECT_GT(made_again, arithmetic + 2);
  setting.machine.h2d.bytes_per_second = setting.machine.d2h.bytes_per_second = 1e12;  // no replay is faster
  const double crossed = setting.bound(tight).seconds;
  EXPECT_LT(crossed, made_again);
  EXPECT_GE(crossed, setting.bound(unlimited).seconds);
}

// As above, but the activations' way to the host and back takes no time, and the host has room for one
// of the six.
TEST(Bound, ActivationsThatTheHostHasNoRoomForAreMadeAgain) {
  Setting setting(testing::chain_graph(
      {.units = 3, .activation_elements = 1 << 20, .parameter_elements = 1, .op_flops = 1}));
  const Bytes activation = sizeof(float) << 20U, tight = 3 * activation;
  const double arithmetic = setting.bound(unlimited).seconds;
  setting.machine.h2d.bytes_per_second = setting.machine.d2h.bytes_per_second = 1e30;
  const Bytes fixed = setting.graph.tensor(testing::find_tensor(setting.graph, "x0")).bytes() + 1000;
  EXPECT_NEAR(setting.bound(tight, fixed + 6 * activation).seconds, arithmetic, 0.01);
  EXPECT_NEAR(setting.bound(tight, fixed + activation).seconds, arithmetic + 3, 0.01);
  EXPECT_NEAR(setting.bound(tight, fixed).seconds, arithmetic + 4, 0.01);
}

// On the host each parameter takes 16000 bytes with its state and its gradient; the device has room for both
// parameters. An update takes the host no time, and the device 100 s.
TEST(Bound, ParametersThatTheHostHasNoRoomForAreUpdatedOnTheDevice) {
  Setting setting;
  for (Op& op : setting.graph.ops)
    if (op.phase == Phase::update && setting.graph.kind_of(op.writes.front()) == TensorKind::parameter)
      op.cost.flops = 100;
  const Bytes device = 40000, fixed = 200;
  const double free = setting.bound(device, unlimited).seconds;
  EXPECT_NEAR(setting.bound(device, fixed + 2 * 16000).seconds, free, 0.1);
  EXPECT_NEAR(setting.bound(device, fixed + 16000).seconds, free + 100, 5);
  EXPECT_NEAR(setting.bound(device, fixed).seconds, free + 200, 15);
}

// The last unit's forward reads x1, too. x1 is away before that and behind it, since a3 and b.backward5 leave
// room for their own workspaces alone. So x1 is back twice, the first time before the turn: either b0 runs
// for 20 s once more, or 4000 bytes come in for 40 s beside 33 s of forward.
TEST(Bound, ASkipConnectionCountsAtTheMomentsBetweenItsUses) {
  const auto bound = [](bool skip, Bytes budget) {
    Graph graph = testing::chain_graph(
        {.units = 6, .activation_elements = 1000, .parameter_elements = 1, .op_flops = 1});
    graph.ops[testing::find_op(graph, "b0")].cost.flops = 20;
    for (const char* op : {"a3", "b.backward5"}) {
      graph.ops[testing::find_op(graph, op)].writes.push_back(static_cast<TensorId>(graph.tensors.size()));
      graph.tensors.push_back({std::string("work of ") + op,
                               DataType::f32,
                               {op == std::string("a3") ? 11000 : 10000},
                               TensorKind::activation,
                               {}});
    }
    if (skip) graph.ops[testing::find_op(graph, "b5")].reads.push_back(testing::find_tensor(graph, "x1"));
    Setting setting(std::move(graph));
    setting.machine.h2d.bytes_per_second = 100;
    return setting.bound(budget).seconds;
  };
  const Bytes tight = 52100;  // of which a3 has 52004 and b.backward5 52000
  EXPECT_GT(bound(true, tight), bound(false, tight) + 2);
  EXPECT_NEAR(bound(true, 200000), bound(false, 200000), 0.1);
}

// Returns the seconds of a phase in which a link must idle: one second of each op, less the time in which the
// room beside its operands lets bytes arrive, or the room beside its outputs lets bytes leave.
double idle_seconds(const Setting& setting, Phase phase, bool in, double budget, double rate) {
  double seconds = 0;
  for (const Op& op : setting.graph.ops) {
    if (op.phase != phase) continue;
    std::vector<TensorId> taken = op.writes;
    if (in) taken.insert(taken.end(), op.reads.begin(), op.reads.end());
    double room = budget;
    for (TensorId id : taken) room -= static_cast<double>(setting.graph.tensor(id).bytes());
    seconds += std::max(0.0, 1 - std::max(0.0, room) / rate);
  }
  return seconds;
}

// There is room for 100 bytes beside a parameter, so while an op reads one parameter, the other
// one's transfer of 4 s hardly goes on. W1 comes in for backward, too, since it cannot be held
// beside W1's gradient.
TEST(Bound, WhatHasNoRoomBesideAnOpDoesNotArriveDuringIt) {
  Setting setting;
  setting.machine.h2d.bytes_per_second = 1000;
  const double front = idle_seconds(setting, Phase::forward, true, 4100, 1000);
  const double back = idle_seconds(setting, Phase::backward, true, 4100, 1000);
  EXPECT_GT(front, 1.5);
  EXPECT_GT(back, 4);
  EXPECT_NEAR(setting.bound(4100).seconds, 8 + front + 4 + back, 0.15);
}

// Only gradients leave, the first of them behind two ops. Other backward ops have room beside
// what they write.
TEST(Bound, WhatAnOpWritesOverDoesNotLeaveDuringIt) {
  Setting setting;
  setting.machine.d2h.bytes_per_second = 1000;
  const double back = idle_seconds(setting, Phase::backward, false, 4100, 1000);
  EXPECT_GT(back, 1.5);
  EXPECT_NEAR(setting.bound(4100).seconds, 6 + 8 + std::max(2.0, back), 0.1);
}

TEST(Bound, MoreMemoryNeverRaisesIt) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::any_machine(seed);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    double before = lower_bound(problem, {minimum_bytes(graph, machine), unlimited}).seconds;
    for (Bytes budget = minimum_bytes(graph, machine); budget < 2 * need_bytes(graph, machine);
         budget += 1 + budget / 3) {
      const double seconds = lower_bound(problem, {budget, unlimited}).seconds;
      EXPECT_LE(seconds, before * (1 + 1e-3)) << seed << " at " << budget;
      before = seconds;
    }
  }
}

TEST(Bound, MoreHostMemoryNeverRaisesIt) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Graph graph = testing::random_graph(seed);
    const Machine machine = testing::any_machine(seed);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    const Bytes device =
        testing::random_budget(seed, minimum_bytes(graph, machine), need_bytes(graph, machine));
    const double free = lower_bound(problem, {device, unlimited}).seconds;
    double before = std::numeric_limits<double>::infinity();
    for (Bytes host = need_bytes(graph, machine) / 10; host < 4 * need_bytes(graph, machine);
         host += host / 3) {
      const double seconds = lower_bound(problem, {device, host}).seconds;
      EXPECT_LE(seconds, before * (1 + 1e-3)) << seed << " at " << host;
      EXPECT_GE(seconds, free * (1 - 1e-3)) << seed << " at " << host;
      before = seconds;
    }
    EXPECT_NEAR(before, free, 1e-3 * free) << seed;
  }
}

// Expects that the plan is not faster than its lower bound, nor than the bound in no more memory than
// the plan takes.
void expect_not_faster(const Plan& plan, const Problem& problem) {
  EXPECT_GE(plan.predicted_step_seconds * (1 + 1e-9), plan.lower_bound_seconds);
  const Budget own{plan.device_peak_bytes, plan.host_bytes};
  EXPECT_GE(plan.predicted_step_seconds * (1 + 1e-9), lower_bound(problem, own).seconds);
}

// Returns a random graph, or for two of three seeds one of alike units whose ops take about as long as their
// results take to the host.
Graph graph_for_host_limits(std::uint64_t seed, const Machine& machine) {
  if (seed % 3 == 0) {
    const std::uint32_t micro_batches = seed % 2 == 0 ? 2 : 1;
    return testing::random_graph(
        seed, {.max_units = 5, .micro_batches = micro_batches, .gradient_groups = micro_batches});
  }
  testing::ChainOptions chain{.units = 3 + static_cast<int>(seed % 5)};
  chain.activation_elements = 1 << (10 + seed % 3);
  chain.parameter_elements = 1 << (8 + seed % 7);
  const double way = 4 * static_cast<double>(chain.activation_elements) / machine.d2h.bytes_per_second;
  chain.op_flops = machine.flops_per_second * way * std::pow(2, static_cast<double>(seed % 4) - 1);
  return testing::chain_graph(chain);
}

TEST(Bound, NoPlanIsFasterInLimitedHostMemory) {
  int binding = 0;
  for (std::uint64_t seed = 0; seed < testing::draws<std::uint64_t>(12, 4); ++seed) {
    const Machine machine = testing::any_machine(seed);
    const Graph graph = graph_for_host_limits(seed, machine);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    Planner planner(graph, machine);
    const Bytes least = planner.minimum_bytes(), need = std::max(least, planner.need_bytes());
    for (const Bytes device : {least + (need - least) / 10, least + (need - least) / 2}) {
      const auto none = planner.answer({device, 0}).outcome,
                 freely = planner.answer({device, unlimited}).outcome;
      const Bytes least_host = std::get<Infeasible>(none).minimum;
      const Bytes most_host = std::max(least_host, std::get<Plan>(freely).host_bytes);
      for (const Bytes part : {0, 2, 5, 10}) {
        SCOPED_TRACE(std::to_string(seed) + " at " + std::to_string(device) + ", part " +
                     std::to_string(part));
        const auto result =
            planner.answer({device, least_host + (most_host - least_host) * part / 10}).outcome;
        ASSERT_TRUE(std::holds_alternative<Plan>(result));
        const Plan& plan = std::get<Plan>(result);
        expect_not_faster(plan, problem);
        const double without = lower_bound(problem, {device, unlimited}).seconds;
        binding += plan.lower_bound_seconds > 1.01 * without ? 1 : 0;
      }
    }
  }
  EXPECT_GT(binding, 0) << "host memory has never bound";
}

TEST(Bound, NoPlanIsFaster) {
  for (std::uint64_t seed = 0; seed < testing::draws<std::uint64_t>(40, 8); ++seed) {
    const std::uint32_t micro_batches = seed % 5 == 4 ? 2 : 1;
    Graph graph = testing::random_graph(
        seed, {.max_units = 5, .micro_batches = micro_batches, .gradient_groups = micro_batches});
    Machine machine = testing::any_machine(seed);
    const Problem problem = make_problem(graph, machine, {.target_bytes = 0});
    Planner planner(graph, machine);
    const Bytes least = planner.minimum_bytes();
    for (Bytes budget :
         {least, least + least / 50, least + least / 10, least + least / 3, least * 2, unlimited}) {
      const auto result = planner.answer({budget, unlimited}).outcome;
      ASSERT_TRUE(std::holds_alternative<Plan>(result));
      SCOPED_TRACE(std::to_string(seed) + " at " + std::to_string(budget));
      expect_not_faster(std::get<Plan>(result), problem);
    }
  }
}

}  // namespace
}  // namespace stowage
