// Plans with one thing wrong about an update that begins before the gate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "offload/plan/validate/passes.h"
#include "stowage/planner.h"
#include "stowage/undo_record.h"
#include "tests/offload/plan/validate/made_plans.h"
#include "tests/offload/plan/validate/small_plans.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using testing::joined;
using testing::MadePlan;
using ::testing::Not;

constexpr InstructionId speculation = 17;
constexpr InstructionId gate = 18;
constexpr InstructionId commit = 19;
constexpr Bytes record = undo_record_bytes(64);

TEST(Speculations, OfTheSmallPlanAreValid) {
  const Plan plan = testing::small_speculating_plan();
  ASSERT_EQ(plan.instructions[speculation].kind, InstructionKind::speculate);
  ASSERT_EQ(plan.gate, gate);
  ASSERT_EQ(plan.instructions[commit].kind, InstructionKind::commit);
  EXPECT_EQ(joined(validate(testing::small_graph(), plan, {})), "");
}

// Adds the speculation once more, with a record of its own.
void add_copy(Plan& plan, InstructionId id) {
  testing::insert_copy(plan, id, id + 1);
  const Bytes bytes = plan.instructions[id].part.bytes();
  plan.instructions[id + 1].part = {plan.undo_bytes, plan.undo_bytes + bytes};
  plan.undo_bytes += bytes;
  plan.host_bytes += bytes;
}

struct Break {
  std::string name;
  std::function<void(Plan&)> apply;
  std::string words;
};
void PrintTo(const Break& way, std::ostream* out) { *out << way.name; }

class BrokenSpeculation : public ::testing::TestWithParam<Break> {};

TEST_P(BrokenSpeculation, IsRejectedForTheRightReason) {
  Plan plan = testing::small_speculating_plan();
  GetParam().apply(plan);
  EXPECT_THAT(joined(validate(testing::small_graph(), plan, {})), HasSubstr(GetParam().words));
}

const std::vector<Break> breaks{
    {"behind_the_gate", [](Plan& plan) { testing::move_instruction(plan, speculation, gate); },
     "instruction 18 (speculation of op 'adamw') speculates behind the gate"},
    {"never_committed", [](Plan& plan) { testing::remove_instruction(plan, commit); },
     "instruction 17 (speculation of op 'adamw') is never committed on the host"},
    {"committed_on_the_device", [](Plan& plan) { plan.instructions[commit].lane = LaneRole::compute; },
     "instruction 17 (speculation of op 'adamw') is never committed on the host"},
    {"twice", [](Plan& plan) { add_copy(plan, speculation); }, "op 'adamw' is speculated twice"},
    {"of_no_update", [](Plan& plan) { plan.instructions[speculation].op = 7; },
     "instruction 17 (speculation of op 'square') speculates what is no update, or cannot be taken back"},
    {"of_no_update_without_record",
     [](Plan& plan) {
       plan.instructions[speculation].op = 7;
       plan.instructions[speculation].part = {};
     },
     "instruction 17 (speculation of op 'square') speculates what is no update, or cannot be taken back"},
    {"of_the_clip_op", [](Plan& plan) { plan.instructions[speculation].op = 8; },
     "instruction 17 (speculation of op 'clip') speculates what is no update, or cannot be taken back"},
    {"on_the_device", [](Plan& plan) { plan.instructions[speculation].lane = LaneRole::compute; },
     "instruction 17 (speculation of op 'adamw') is on the wrong lane"},
    {"record_past_all",
     [](Plan& plan) {
       plan.instructions[speculation].part = {64, 64 + record};
     },
     "has the undo record 64 to 256 of 192 bytes, but needs 192 bytes"},
    {"record_too_small",
     [](Plan& plan) {
       plan.instructions[speculation].part = {0, record - 1};
     },
     "has the undo record 0 to 191 of 192 bytes, but needs 192 bytes"},
    {"record_too_large",
     [](Plan& plan) {
       plan.undo_bytes = record + 64;
       plan.instructions[speculation].part = {0, record + 64};
     },
     "has the undo record 0 to 256 of 256 bytes, but needs 192 bytes"},
    {"record_upside_down",
     [](Plan& plan) {
       plan.instructions[speculation].part = {record, 0};
     },
     "has the undo record 192 to 0 of 192 bytes"},
    {"record_shared",
     [](Plan& plan) {
       testing::insert_copy(plan, speculation, speculation + 1);
       plan.undo_bytes = record + 64;
       plan.instructions[speculation + 1].part = {64, 64 + record};
     },
     "instruction 18 (speculation of op 'adamw') shares bytes of its undo record"},
    // The offload of the gradient is instruction 15.
    {"gradient_not_landed", [](Plan& plan) { plan.instructions[speculation].waits.clear(); },
     "both touch host bytes of bucket 'W.grad'"},
    {"undo_bytes_not_counted", [](Plan& plan) { plan.host_bytes -= record; },
     "the plan declares host_bytes 1376, but it is 1568"},
};

INSTANTIATE_TEST_SUITE_P(Speculations, BrokenSpeculation, ::testing::ValuesIn(breaks),
                         [](const auto& info) { return info.param.name; });

// A prefetch beside the update, with nothing that orders the two.
TEST(Speculations, WaitForEveryPrefetchOfTheWeight) {
  const Graph graph = testing::small_graph();
  Plan plan = testing::small_speculating_plan();
  testing::insert_copy(plan, 9, speculation);
  EXPECT_THAT(joined(validate(graph, plan, {})), HasSubstr("both touch host bytes of bucket 'W'"));
  plan.instructions[speculation + 1].waits.push_back({speculation, 0});
  EXPECT_THAT(joined(validate(graph, plan, {})), Not(HasSubstr("both touch host bytes of bucket 'W'")));
}

std::string value_findings(const Graph& graph, const Plan& plan) {
  validation::Report report(graph, plan);
  const validation::Places places = validation::check_buckets(graph, plan, report);
  const validation::Order order(plan, report);
  validation::check_values(graph, plan, places, order, report);
  return joined(report.take());
}

// W comes in once more for one more replay of f: before the update has begun, and after.
TEST(Speculations, LetNobodyReadWhatTheyLeave) {
  const Graph graph = testing::small_graph();
  for (const InstructionId at : {speculation, gate, commit}) {
    SCOPED_TRACE(at);
    Plan plan = testing::small_speculating_plan();
    constexpr InstructionId prefetch = 9, replay = 11;
    testing::insert_copy(plan, prefetch, at);
    testing::insert_copy(plan, replay, at + 1);
    const auto again = static_cast<LifetimeId>(plan.lifetimes.size());
    plan.lifetimes.push_back({1, 8, 9, 256, at + 1});
    plan.instructions[at].lifetime = plan.instructions[at + 1].uses[1] = again;
    plan.instructions[at + 1].waits = {{at, 0}};
    plan.instructions[at].waits = {{at == speculation ? 15U : speculation, 0}};
    const auto words =
        HasSubstr("reads 'W' on the device: a speculated update has changed it, and is not committed");
    if (at == speculation) {
      EXPECT_THAT(value_findings(graph, plan), Not(words));
    } else {
      EXPECT_THAT(value_findings(graph, plan), words);
    }
  }
}

// The update runs under another kernel, which leaves no record.
TEST(Speculations, AreOfUpdatesThatCanBeTakenBack) {
  Graph graph = testing::small_graph();
  const Plan plan = testing::small_speculating_plan();
  graph.ops[plan.instructions[speculation].op].kernel = "sgd";
  EXPECT_EQ(
      joined(validate(graph, plan, {})),
      "instruction 17 (speculation of op 'adamw') speculates what is no update, or cannot be taken back\n");
}

TEST(Speculations, AreKeptWithinTheHostBudget) {
  const Graph graph = testing::small_graph();
  const Plan plan = testing::small_speculating_plan();
  EXPECT_EQ(joined(validate(graph, plan, {unlimited, 1376 + record})), "");
  EXPECT_THAT(
      joined(validate(graph, plan, {unlimited, 1376 + record - 1})),
      HasSubstr("the host buckets, gradient ring and undo records take 1568 bytes, the host budget is 1567"));
}

// Breaks every fifth speculation of plans that make_plan makes.
TEST(Speculations, OfMadePlansAreFoundWhenBroken) {
  int speculations = 0, moved = 0, doubled = 0, uncommitted = 0;
  testing::for_each_made_plan(6040, 6048, [&](const MadePlan& made) {
    for (InstructionId id = 0; id < made.plan.gate; ++id) {
      if (made.plan.instructions[id].kind != InstructionKind::speculate) continue;
      if (speculations++ % 5 != 0) continue;
      SCOPED_TRACE(made.name + ", instruction " + std::to_string(id));
      const auto findings = [&](auto&& apply) {
        Plan plan = made.plan;
        apply(plan);
        return joined(validate(made.graph, plan, made.budget));
      };
      EXPECT_THAT(findings([&](Plan& plan) { testing::move_instruction(plan, id, plan.gate); }),
                  HasSubstr("speculates behind the gate"));
      ++moved;
      EXPECT_THAT(findings([&](Plan& plan) { add_copy(plan, id); }), HasSubstr("is speculated twice"));
      ++doubled;
      EXPECT_THAT(
          findings([&](Plan& plan) {
            const auto end =
                std::find_if(plan.instructions.begin() + plan.gate, plan.instructions.end(),
                             [&](const Instruction& each) { return each.op == plan.instructions[id].op; });
            testing::remove_instruction(plan, static_cast<InstructionId>(end - plan.instructions.begin()));
          }),
          HasSubstr("is never committed on the host"));
      ++uncommitted;
    }
  });
  EXPECT_GT(moved, 5);
  EXPECT_EQ(doubled, moved);
  EXPECT_EQ(uncommitted, moved);
}

}  // namespace
}  // namespace stowage
