#include "tests/offload/oracle/oracle.h"
#include "offload/plan/problem/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/graph/cost.h"
#include "stowage/error.h"
#include "stowage/planner.h"
#include "tests/offload/oracle/exact_placement.h"
#include "tests/offload/oracle/judge.h"
#include "tests/offload/oracle/small_graph.h"
#include "tests/support/draws.h"

namespace stowage::oracle {
namespace {

constexpr std::uint64_t seeds = testing::draws<std::uint64_t>(40, 3);

// The limits of bench/oracle/README.md, which takes more instances.
TEST(Oracle, ThePlannerIsSeldomFarFromTheLeastTime) {
  double gaps = 0;
  int both = 0, near = 0, without = 0, proven = 0, open = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed)
    for (int rung = 0; rung < rungs; ++rung) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(rung));
      const Verdict verdict = judge(seed, rung, false);
      EXPECT_TRUE(verdict.faults.empty()) << verdict.faults.front();
      EXPECT_FALSE(verdict.lost());
      if (std::isinf(verdict.lower)) ++without;
      if (verdict.open()) ++open;
      if (!verdict.judged()) continue;
      gaps += std::max(0.0, verdict.ratio() - 1);
      near += verdict.ratio() <= 1.1 ? 1 : 0;
      proven += verdict.exact ? 1 : 0;
      ++both;
    }
  EXPECT_GE(near, both * 95 / 100) << "of " << both;
  EXPECT_LE(gaps / both, 0.03);
  EXPECT_GE(proven, both * 9 / 10) << "the oracle has too few plans of its own";
  EXPECT_LE(open, both / 50) << "the oracle has found nothing too often";
  EXPECT_GT(without, 0) << "no instance without any plan";
}

// Two micro-batches, the order ahead(2): the bound holds, the oracle is not beaten, and seldom is the planner
// far from it.
TEST(Oracle, PlansWithForwardsAheadAreSeldomFarFromTheLeastTime) {
  int both = 0, near = 0;
  for (std::uint64_t seed = 0; seed < testing::draws<std::uint64_t>(30, 2); ++seed)
    for (int rung = 0; rung < rungs; ++rung) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(rung));
      const Verdict verdict = judge_two_parts(seed, 1, rung);
      EXPECT_TRUE(verdict.faults.empty()) << verdict.faults.front();
      EXPECT_FALSE(verdict.lost());
      if (!verdict.judged()) continue;
      near += verdict.ratio() <= 1.1 ? 1 : 0;
      ++both;
    }
  EXPECT_GT(both, 0);
  EXPECT_GE(near, both * 9 / 10) << "of " << both;
}

// Two units, everything a round number: 1 s for each op's flops, links without latency.
struct Setting {
  explicit Setting(Bytes parameter = 64 * 1024) {
    UnitShape unit;
    unit.activation = 1024;
    unit.parameter = static_cast<std::int64_t>(parameter / 4);
    unit.flops = 1;
    SmallGraphOptions options;
    options.units = {unit, unit};
    options.head_flops = 1;
    graph = small_graph(options);
    machine.flops_per_second = 1;
    machine.device_bytes_per_second = 1e30;
    machine.launch_seconds = 0;
    machine.h2d = machine.d2h = {1e30, 0, true};
    machine.host_bytes_per_second = 1e30;
  }
  Graph graph;
  Machine machine;
};

TEST(Oracle, WithoutScarcityTheStepIsTheArithmetic) {
  const Setting setting;
  const Game game(setting.graph, setting.machine);
  const Answer answer = ask(game, setting.graph, {Bytes{1} << 30});
  EXPECT_TRUE(answer.exact);
  EXPECT_NEAR(answer.lower, 3 + 1 + 2 + 2, 1e-6);  // a0, a1, head; and back, twice as much but for the head
}

// Each parameter takes 1 s to fetch and to send. With room for no optimizer state, W0 comes before forward
// and its gradient leaves behind backward; all else is hidden.
TEST(Oracle, TheLinkIsPaidWhereNothingHidesIt) {
  Setting setting;
  setting.machine.h2d.bytes_per_second = setting.machine.d2h.bytes_per_second = 64 * 1024;
  const Game game(setting.graph, setting.machine);
  const Answer rich = ask(game, setting.graph, {Bytes{1} << 30});
  EXPECT_NEAR(rich.lower, 8, 0.02);  // resident: x0 and scalars alone cross
  const Answer poor = ask(game, setting.graph, {3 * 64 * 1024});
  ASSERT_TRUE(poor.exact);
  EXPECT_NEAR(poor.lower, 10, 0.02);
  EXPECT_LE(poor.plan->device_peak_bytes, 3U * 64 * 1024);
}

constexpr Bytes without_state = 3 * 64 * 1024;  // so that W0 and W1 are updated on the host

// Late updates take `seconds` each. They are W0's, which the first op waits for, and W1's.
struct SlowHost : Setting {
  explicit SlowHost(double seconds) {
    const Op& update = graph.ops.back();
    machine.host_bytes_per_second = update.cost.bytes / seconds;
    early_seconds = undoable_seconds(graph, update, machine);
  }
  double early_seconds = 0;
};

double seconds_with(const Setting& setting, Choice choice, UpdateMask early) {
  choice.early = early;
  return ask(Game(setting.graph, setting.machine), setting.graph, {without_state}, {}, &choice).lower;
}

// Two micro-batches in two ranges: units 0 and 1, then unit 2, unit 3 and the head. Unit 3 alone has a
// parameter, whose gradient is whole early in the last micro-batch's backward of the last range. Its update
// begins there and takes 60 s, which hides the 20 s of unit 2 and all that comes behind. Before it are 0.4 s
// of the first range's forwards, two forwards of 10.2 s and a backward of 20.3 s, and 0.3 s of the last one.
// In the bound a part of the update may hide behind the front, 10.6 s, instead.
TEST(Oracle, EarlyUpdatesBeginInTheLastBackwardOfTheLastRange) {
  UnitShape small, large;
  small.activation = large.activation = 1024;
  small.flops = 0.1;
  large.flops = 10;
  UnitShape last = small;
  last.parameter = 64 * 1024;
  Graph graph = in_two_parts(small_graph({.units = {small, small, large, last}, .head_flops = 0.1})).graph;
  graph.range_begins = {2};
  for (Op& op : graph.ops)
    if (op.kernel == "clip") op.attributes.emplace("clip", 0.0);
  check(graph);
  Machine machine = Setting().machine;
  machine.host_bytes_per_second = 1;
  machine.host_bytes_per_second = host_seconds(graph.ops.back(), machine) / 60;
  const PlanOptions options{.order = MicroBatchOrder::ahead(1), .optimizer_in_backward = true};
  const auto planned =
      make_plan(graph, machine, {minimum_bytes(graph, machine, options), unlimited}, options);
  const Plan& plan = std::get<Plan>(planned);
  EXPECT_NEAR(plan.predicted_step_seconds, 41.1 + 0.3 + 60, 0.01);
  EXPECT_NEAR(plan.lower_bound_seconds, 41.1 + 60 - 10.6, 0.1);
}

TEST(Oracle, GainsNothingByEarlyUpdatesThatForwardNeedNotWaitFor) {
  const SlowHost setting(0.5);
  const Game game(setting.graph, setting.machine);
  const Answer answer = ask(game, setting.graph, {without_state});
  ASSERT_TRUE(answer.exact);
  EXPECT_NEAR(answer.lower, 0.5 + 8, 1e-3);
  EXPECT_DOUBLE_EQ(seconds_with(setting, answer.choice, 0), answer.lower);
  EXPECT_NEAR(seconds_with(setting, answer.choice, 0b01), 8 + setting.early_seconds, 1e-3);
}

// Two late updates would hold up the second op until 4 s. W1's gradient lands 2 s before backward ends, W0's
// at its end.
TEST(Oracle, UpdatesBeforeTheGateWhatForwardWouldWaitFor) {
  const SlowHost setting(2);
  const Game game(setting.graph, setting.machine);
  const Answer answer = ask(game, setting.graph, {without_state});
  ASSERT_TRUE(answer.exact);
  EXPECT_NEAR(answer.lower, 2 + 6 + setting.early_seconds, 1e-3);
  EXPECT_EQ(answer.choice.early, 0b10U);
  EXPECT_EQ(answer.plan->undo_bytes, undo_bytes(setting.graph, setting.graph.ops.back()));
  EXPECT_NEAR(seconds_with(setting, answer.choice, 0), 2 + 2 + 7, 1e-3);
  EXPECT_NEAR(seconds_with(setting, answer.choice, 0b11), 6 + 2 * setting.early_seconds, 1e-3);
}

// The search decides about early updates only where one is waited for. Here every set of them is played.
TEST(Oracle, NoOtherEarlyUpdatesAreFaster) {
  int early = 0;
  for (std::uint64_t seed = 200; seed < 200 + seeds; ++seed) {
    Instance instance = small_instance(seed);
    instance.machine.host_bytes_per_second /= 4;
    const Game game(instance.graph, instance.machine);
    const Bytes budget = minimum_bytes(instance.graph, instance.machine) * 5 / 4;
    const Answer answer = ask(game, instance.graph, {budget});
    if (!answer.exact) continue;
    early += answer.choice.early != 0 ? 1 : 0;
    const UpdateMask may = game.step(answer.choice).undoable;
    double least = std::numeric_limits<double>::infinity();
    for (UpdateMask mask = may;; mask = (mask - 1) & may) {
      Choice choice = answer.choice;
      choice.early = mask;
      least = std::min(least, ask(game, instance.graph, {budget}, {}, &choice).lower);
      if (mask == 0) break;
    }
    EXPECT_NEAR(least, answer.lower, 1e-9 * least) << "seed " << seed;
  }
  EXPECT_GT(early, 0);
}

TEST(Oracle, SaysWhenThereIsNoPlan) {
  const Setting setting;
  const Game game(setting.graph, setting.machine);
  const Answer answer =
      ask(game, setting.graph, {64 * 1024 + 100});  // W1, its gradient and more meet in one op
  EXPECT_TRUE(std::isinf(answer.lower));
  EXPECT_FALSE(answer.plan);
}

// Its own plans take the host bytes that it counts; neither the planner's bound nor its plan is better.
TEST(Oracle, ThePlannerDoesNotBeatItInLimitedHostMemory) {
  int slower = 0;
  for (std::uint64_t seed = 300; seed < 300 + seeds; ++seed) {
    const Instance instance = small_instance(seed);
    const Game game(instance.graph, instance.machine);
    const Bytes least = minimum_bytes(instance.graph, instance.machine);
    const Bytes device = least + (std::max(least, need_bytes(instance.graph, instance.machine)) - least) / 3;
    const Answer freely = ask(game, instance.graph, {device});
    if (!freely.plan) continue;
    PlanOptions options;
    own_settings(options).remakes = false;
    own_settings(options).joined_units.clear();
    for (const Bytes percent : {100, 90, 75, 50}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(percent) + " percent");
      const Budget budget{device, freely.plan->host_bytes * percent / 100};
      const Answer answer = ask(game, instance.graph, budget);
      EXPECT_GE(answer.lower, freely.lower * (1 - 1e-9));
      slower += answer.lower > freely.lower * 1.001 && !std::isinf(answer.lower) ? 1 : 0;
      if (answer.plan) {
        const Bytes counted = game.step(answer.choice).host_bytes(answer.choice.early);
        EXPECT_EQ(answer.plan->host_bytes, counted);
        EXPECT_TRUE(validate(instance.graph, *answer.plan, budget).empty());
      }
      const auto planned = make_plan(instance.graph, instance.machine, budget, options);
      if (!std::holds_alternative<Plan>(planned)) continue;
      EXPECT_LE(std::get<Plan>(planned).lower_bound_seconds, answer.lower * (1 + 1e-9));
      EXPECT_GE(std::get<Plan>(planned).predicted_step_seconds, answer.lower * (1 - 1e-9));
    }
  }
  EXPECT_GT(slower, 0) << "host memory was never scarce";
}

// Bound and plan stand on their sides of it, a frozen weight never leaves the device, and with memory to
// spare it never comes.
TEST(Oracle, KnowsWeightsThatAreNotTrained) {
  double gaps = 0;
  int both = 0;
  for (std::uint64_t seed = 500; seed < 500 + seeds; ++seed) {
    const Instance instance = frozen_instance(seed);
    const Game game(instance.graph, instance.machine);
    const Bytes least = minimum_bytes(instance.graph, instance.machine);
    const Bytes need = std::max(least, need_bytes(instance.graph, instance.machine));
    PlanOptions options;
    own_settings(options).remakes = false;
    own_settings(options).joined_units.clear();
    for (const Bytes part : {0, 1, 2, 4}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(part) + " quarters");
      const Budget budget{least + (need - least) * part / 4};
      const auto planned = make_plan(instance.graph, instance.machine, budget, options);
      ASSERT_TRUE(std::holds_alternative<Plan>(planned));
      const Plan& plan = std::get<Plan>(planned);
      EXPECT_EQ(validate(instance.graph, plan, budget), std::vector<std::string>{});
      for (const Instruction& instruction : plan.instructions) {
        if (!is_transfer(instruction.kind)) continue;
        const Bucket& bucket = plan.buckets[plan.lifetimes[instruction.lifetime].bucket];
        const bool frozen =
            bucket.kind == TensorKind::parameter && !instance.graph.is_trained(bucket.tensors.front().tensor);
        EXPECT_FALSE(frozen && instruction.kind == InstructionKind::offload) << bucket.name;
        EXPECT_FALSE(frozen && part == 4) << bucket.name;
      }
      const Answer answer = ask(game, instance.graph, budget);
      if (!answer.plan) continue;
      EXPECT_EQ(validate(instance.graph, *answer.plan, budget), std::vector<std::string>{});
      EXPECT_LE(plan.lower_bound_seconds, answer.lower * (1 + 1e-9));
      EXPECT_GE(plan.predicted_step_seconds, answer.lower * (1 - 1e-9));
      gaps += plan.predicted_step_seconds / answer.lower - 1;
      ++both;
    }
  }
  EXPECT_GE(both, static_cast<int>(2 * seeds));
  EXPECT_LE(gaps / both, 0.03);
}

TEST(Oracle, MoreMemoryIsNeverSlower) {
  for (std::uint64_t seed = 100; seed < 100 + seeds; ++seed) {
    const Instance instance = small_instance(seed);
    const Game game(instance.graph, instance.machine);
    const Bytes least = minimum_bytes(instance.graph, instance.machine);
    double seconds = std::numeric_limits<double>::infinity();
    for (Bytes budget = least; budget < 3 * least; budget += least / 3) {
      const Answer answer = ask(game, instance.graph, {budget});
      EXPECT_LE(answer.lower, seconds * (1 + 1e-9)) << "seed " << seed << " budget " << budget;
      seconds = answer.lower;
    }
  }
}

TEST(Oracle, RefusesWhatItDoesNotKnow) {
  Setting setting;
  for (Op& op : setting.graph.ops)
    if (op.name == "a.weight0") op.may_alias.push_back({0, 0});
  EXPECT_THROW(Game(setting.graph, setting.machine), InvalidInput);
  Setting late;  // backward reads W1 first
  for (Op& op : late.graph.ops)
    if (op.name == "a1") op.reads.pop_back();
  EXPECT_THROW(Game(late.graph, late.machine), InvalidInput);
}

TEST(ExactPlacement, FindsTheOnlyWayAndProvesThatThereIsNone) {
  // In slices 0 and 1: a tall one in each, which must not stand upon the one that spans both in the wrong
  // order.
  const std::vector<PlacedItem> items{{512, {0, 1}}, {1024, {0}}, {256, {1}}, {768, {1, 2}}, {768, {2}}};
  const ExactPlacement placed = place_exactly(items, 1536, 256, 1000);
  ASSERT_TRUE(placed.offsets);
  for (std::size_t a = 0; a < items.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) {
      bool meet = false;
      for (std::size_t slice : items[a].slices)
        for (std::size_t other : items[b].slices) meet |= slice == other;
      const Bytes begin_a = (*placed.offsets)[a], begin_b = (*placed.offsets)[b];
      EXPECT_TRUE(!meet || begin_a + items[a].bytes <= begin_b || begin_b + items[b].bytes <= begin_a);
      EXPECT_LE(begin_a + items[a].bytes, 1536U);
    }
  const ExactPlacement none = place_exactly(items, 1535, 256, 1000);
  EXPECT_TRUE(none.complete);
  EXPECT_FALSE(none.offsets);
}

}  // namespace
}  // namespace stowage::oracle
