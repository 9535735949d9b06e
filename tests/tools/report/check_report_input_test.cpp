#include "tools/report/check_report_input.h"

#include <functional>
#include <limits>

#include "tests/support/expect_refused.h"
#include "tests/tools/report/small_step.h"

namespace stowage::report {
namespace {

using test::expect_refused;

// The small step's plan after `damage`.
void expect_damage_refused(const std::function<void(Graph&, Plan&)>& damage, const std::string& words) {
  static const SmallStep sound;
  SmallStep step = sound;
  damage(step.graph, step.plan);
  expect_refused([&] { require_belongs(step.graph, step.plan); }, words);
  expect_refused([&] { plan_report(step.graph, step.plan, step.machine); }, words);
}

Instruction& first(Plan& plan, InstructionKind kind) {
  return *std::find_if(plan.instructions.begin(), plan.instructions.end(),
                       [&](const Instruction& i) { return i.kind == kind; });
}

TEST(Belongs, AcceptsWhatThePlannerMakes) {
  for (const Policy policy : {Policy::automatic, Policy::none}) {
    const SmallStep step({.policy = policy});
    EXPECT_NO_THROW(require_belongs(step.graph, step.plan));
  }
  EXPECT_NO_THROW(require_belongs({}, {}));
}

TEST(Belongs, RefusesBucketsOfAnotherGraph) {
  expect_damage_refused([](Graph& graph, Plan&) { graph.tensors.pop_back(); }, "holds tensor");
  expect_damage_refused([](Graph&, Plan& plan) { plan.buckets[3].kind = static_cast<TensorKind>(9); },
                        "bucket 3 has no kind");
  expect_damage_refused([](Graph&, Plan& plan) { plan.buckets[3].residency = static_cast<Residency>(7); },
                        "no residency");
}

TEST(Belongs, RefusesLifetimesOutsideOfThePlan) {
  expect_damage_refused([](Graph&, Plan& plan) { plan.lifetimes[2].bucket = no_id; },
                        "lifetime 2 is of bucket");
  expect_damage_refused([](Graph&, Plan& plan) { plan.lifetimes[2].first = -1; }, "lifetime 2 is [-1");
  expect_damage_refused([](Graph&, Plan& plan) { plan.lifetimes[2].last = plan.lifetimes[2].first; },
                        "lifetime 2 is [");
  expect_damage_refused([](Graph&, Plan& plan) { plan.lifetimes[2].last = positions_of(plan) + 1; },
                        "lifetime 2 is [");
  expect_damage_refused(
      [](Graph&, Plan& plan) {
        plan.lifetimes[2].end = static_cast<InstructionId>(plan.instructions.size());
      },
      "lifetime 2 ends with");
  expect_damage_refused([](Graph&, Plan& plan) { plan.lifetimes[2].offset = plan.device_peak_bytes; },
                        "in an arena of");
  expect_damage_refused(
      [](Graph&, Plan& plan) { plan.lifetimes[2].offset = std::numeric_limits<Bytes>::max(); },
      "in an arena of");
  expect_damage_refused([](Graph&, Plan& plan) { plan.device_peak_bytes = 0; }, "in an arena of 0");
}

TEST(Belongs, RefusesInstructionsOutsideOfThePlan) {
  using Kind = InstructionKind;
  expect_damage_refused([](Graph& graph, Plan&) { graph.ops.pop_back(); }, "runs op");
  expect_damage_refused([](Graph&, Plan& plan) { first(plan, Kind::launch).op = no_id; }, "runs op");
  expect_damage_refused([](Graph&, Plan& plan) { first(plan, Kind::prefetch).lifetime = no_id; },
                        "moves lifetime");
  expect_damage_refused([](Graph&, Plan& plan) { first(plan, Kind::launch).uses.push_back(no_id); },
                        "uses lifetime");
  expect_damage_refused(
      [](Graph&, Plan& plan) {
        plan.instructions[4].waits.push_back({4, 0});
      },
      "waits for instruction 4");
  expect_damage_refused(
      [](Graph&, Plan& plan) {
        plan.instructions[4].waits.push_back({no_id, 1});
      },
      "waits for");
  expect_damage_refused(
      [](Graph&, Plan& plan) { plan.instructions[4].lane = static_cast<LaneRole>(lane_roles); },
      "on another lane");
  expect_damage_refused([](Graph&, Plan& plan) { first(plan, Kind::prefetch).lane = LaneRole::compute; },
                        "on another lane");
  expect_damage_refused([](Graph&, Plan& plan) { plan.instructions[4].kind = static_cast<Kind>(7); },
                        "no kind");
  expect_damage_refused([](Graph&, Plan& plan) { plan.gate = no_id - 1; }, "its gate is");
  expect_damage_refused([](Graph& graph, Plan&) { graph.ops[1].phase = static_cast<Phase>(3); },
                        "op 1 has no phase");
}

TEST(Belongs, RefusesACurveWithoutTimes) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NO_THROW(require_curve({{1_GiB, 0.5, 0.25, true}, {1, nan, nan, false}, {unlimited, 0, 0, true}}));
  expect_refused([] { require_curve({{0, 0.5, 0.25, true}}); }, "point 0 of the budget curve has no budget");
  expect_refused(
      [] {
        require_curve({{1, 1, 1, true}, {1, nan, 0.25, true}});
      },
      "point 1 of the budget curve");
  expect_refused([] { require_curve({{1, 1, std::numeric_limits<double>::infinity(), true}}); }, "point 0");
  expect_refused([] { require_curve({{1, -1, 1, true}}); }, "point 0");
}

TEST(Belongs, RefusesAMachineThatNeverEnds) {
  SmallStep step;
  step.machine.flops_per_second = 0;
  expect_refused([&] { plan_report(step.graph, step.plan, step.machine); }, "give rates above 0");
  step.machine = {};
  step.machine.h2d.bytes_per_second = std::numeric_limits<double>::quiet_NaN();
  expect_refused([&] { plan_report(step.graph, step.plan, step.machine); }, "give rates above 0");
}

}  // namespace
}  // namespace stowage::report
