#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "stowage/planner.h"
#include "tests/offload/plan/validate/made_plans.h"
#include "tests/offload/plan/validate/small_plans.h"
#include "tests/support/random_graph.h"

namespace stowage {
namespace {

using testing::bucket_named;
using testing::insert_copy;
using testing::joined;
using testing::move_instruction;
using testing::op_named;
using testing::remove_instruction;
using testing::run_of;
using testing::settle_totals;
using testing::transfer_of;
using enum InstructionKind;

TEST(Validate, HandWrittenPlansAreValid) {
  const Graph graph = testing::small_graph();
  EXPECT_NO_THROW(check(graph));
  EXPECT_EQ(joined(validate(graph, testing::small_streamed_plan(), {1280, 1376})), "");
  EXPECT_EQ(joined(validate(graph, testing::small_resident_plan(), {2832, 96})), "");
}

TEST(Validate, MadePlansAreValid) {
  testing::for_each_made_plan(2000, 2040, [](const testing::MadePlan& made) {
    EXPECT_EQ(joined(validate(made.graph, made.plan, made.budget)), "") << made.name;
  });
}

TEST(Validate, EmptyPlanLacksEverything) {
  const Graph graph = testing::small_graph();
  EXPECT_THAT(joined(validate(graph, Plan{}, {})), ::testing::HasSubstr("tensor 'W' is in no bucket"));
}

// A way to break the streamed plan, and what the validator must say about it.
struct Break {
  std::string name;
  std::function<void(Plan&)> apply;
  std::vector<std::string> words;  // all in one finding
};
void PrintTo(const Break& way, std::ostream* out) { *out << way.name; }

const Graph& graph() {
  static const Graph graph = testing::small_graph();
  return graph;
}
InstructionId run(const Plan& plan, InstructionKind kind, const std::string& op) {
  return run_of(graph(), plan, kind, op);
}
Instruction& launched(Plan& plan, const std::string& op) { return plan.instructions[run(plan, launch, op)]; }

void expect_finding(const Plan& plan, const Break& way) {
  const std::vector<std::string> findings = validate(graph(), plan, {});
  const bool found = std::any_of(findings.begin(), findings.end(), [&](const std::string& finding) {
    return std::all_of(way.words.begin(), way.words.end(),
                       [&](const std::string& word) { return finding.find(word) != std::string::npos; });
  });
  EXPECT_TRUE(found) << "no finding with all of " << ::testing::PrintToString(way.words) << " in\n"
                     << joined(findings);
}

class BrokenStreamedPlan : public ::testing::TestWithParam<Break> {};

TEST_P(BrokenStreamedPlan, IsRejectedForTheRightReason) {
  Plan plan = testing::small_streamed_plan();
  GetParam().apply(plan);
  settle_totals(plan);
  expect_finding(plan, GetParam());
}

const std::vector<Break> streamed_breaks{
    {"wait_removed",
     [](Plan& plan) { launched(plan, "f").waits.clear(); },
     {"lifetime 1 of bucket 'W' ends with instruction 3 (launch of op 'f')", "prefetch of bucket 'W'",
      "not ordered"}},
    {"wait_for_reuse_removed",
     [](Plan& plan) { launched(plan, "square").waits.clear(); },
     {"no wait orders instruction 7 (offload of bucket 'loss') before instruction 14 (launch of op "
      "'square')"}},
    {"prefetch_late",
     [](Plan& plan) {
       launched(plan, "f").waits.clear();
       move_instruction(plan, transfer_of(plan, prefetch, "W"), run(plan, launch, "f"));
     },
     {"launch of op 'f'", "reads 'W' on the device: the value is not there"}},
    {"prefetch_removed",
     [](Plan& plan) { remove_instruction(plan, transfer_of(plan, prefetch, "W")); },
     {"launch of op 'f'", "reads 'W' on the device: the value is not there"}},
    {"input_prefetch_removed",
     [](Plan& plan) { remove_instruction(plan, transfer_of(plan, prefetch, "tokens")); },
     {"launch of op 'embed'", "reads 'tokens'"}},
    {"activation_prefetch_before_its_offload",
     [](Plan& plan) {
       plan.instructions[transfer_of(plan, prefetch, "W", 1)].waits.clear();
       move_instruction(plan, transfer_of(plan, prefetch, "x0"), transfer_of(plan, offload, "x0"));
     },
     {"recompute of op 'f'", "reads 'x0'", "the value is one of an earlier step"}},
    {"live_ranges_overlap",
     [](Plan& plan) { plan.lifetimes[4].offset = plan.lifetimes[2].offset; },
     {"lifetime 2 of bucket 'x0' and lifetime 4 of bucket 'x1' overlap"}},
    {"gradient_offload_removed",
     [](Plan& plan) { remove_instruction(plan, transfer_of(plan, offload, "W.grad")); },
     {"gradient lost: 'W.grad' has not landed on the host"}},
    {"gradient_offload_behind_the_gate",
     [](Plan& plan) {
       move_instruction(plan, transfer_of(plan, offload, "W.grad"), plan.gate);
       plan.instructions.back().waits.push_back({plan.gate + 1, 0});
     },
     {"gradient lost: 'W.grad' has not landed on the host"}},
    {"norm_part_lost",
     [](Plan& plan) { remove_instruction(plan, transfer_of(plan, offload, "sum")); },
     {"gate of op 'clip'", "reads 'sum' on the host: the value is not there"}},
    {"gate_does_not_wait",
     [](Plan& plan) { plan.instructions[plan.gate].waits.clear(); },
     {"the gate, instruction 17", "does not wait for instruction 15 (offload of bucket 'W.grad')"}},
    {"gate_too_early",
     [](Plan& plan) {
       plan.instructions[plan.gate].waits.clear();
       move_instruction(plan, plan.gate, transfer_of(plan, offload, "W.grad"));
     },
     {"gradient lost: 'W.grad' has not landed on the host when the gate"}},
    {"gate_is_another",
     [](Plan& plan) { plan.gate = run(plan, commit, "adamw"); },
     {"the gate", "does not run the clip op"}},
    {"gate_is_a_commit",
     [](Plan& plan) { plan.instructions[plan.gate].kind = commit; },
     {"commit of op 'clip'", "commits what is no update op"}},
    {"gate_twice",
     [](Plan& plan) { plan.instructions[run(plan, commit, "adamw")].kind = gate; },
     {"gate of op 'adamw'", "is not the plan's gate"}},
    {"gate_missing", [](Plan& plan) { plan.gate = no_id; }, {"no gate"}},
    {"weights_change_before_the_gate",
     [](Plan& plan) { move_instruction(plan, run(plan, commit, "adamw"), plan.gate); },
     {"commit of op 'adamw'", "changes weights before the gate"}},
    {"update_applied_twice",
     [](Plan& plan) { insert_copy(plan, run(plan, commit, "adamw"), run(plan, commit, "adamw") + 1); },
     {"instruction 19 (commit of op 'adamw') reads 'W' on the host: the update is applied twice"}},
    {"update_counted_twice",
     [](Plan& plan) { insert_copy(plan, run(plan, commit, "adamw"), run(plan, commit, "adamw") + 1); },
     {"op 'adamw' runs 2 times: the gradient is applied twice to 'W'"}},
    {"update_removed",
     [](Plan& plan) { remove_instruction(plan, run(plan, commit, "adamw")); },
     {"reads 'W' on the device: stale parameter"}},
    {"update_not_counted",
     [](Plan& plan) { remove_instruction(plan, run(plan, commit, "adamw")); },
     {"op 'adamw' never runs: stale parameter 'W'"}},
    {"wait_on_the_step_before_removed",
     [](Plan& plan) { plan.instructions[transfer_of(plan, prefetch, "W")].waits.clear(); },
     {"no wait orders instruction 18 (commit of op 'adamw') before instruction 1 (prefetch of bucket 'W')",
      "stale parameter"}},
    {"wrong_use",
     [](Plan& plan) {
       std::replace(launched(plan, "f").uses.begin(), launched(plan, "f").uses.end(), 1U, 6U);
     },
     {"launch of op 'f'", "uses lifetime 6 of bucket 'W' outside its interval"}},
    {"use_missing",
     [](Plan& plan) { std::erase(launched(plan, "f").uses, 1U); },
     {"launch of op 'f'", "uses no lifetime of bucket 'W'"}},
    {"use_twice",
     [](Plan& plan) { launched(plan, "f").uses.push_back(6); },
     {"launch of op 'f'", "uses two lifetimes of bucket 'W'"}},
    {"use_of_a_stranger",
     [](Plan& plan) { launched(plan, "f").uses.push_back(5); },
     {"launch of op 'f'", "uses lifetime 5 of bucket 'loss', which holds no operand"}},
    {"recompute_after_its_need",
     [](Plan& plan) { move_instruction(plan, run(plan, recompute, "f"), run(plan, launch, "g.backward")); },
     {"launch of op 'g.backward'", "reads 'h' on the device: the value is not there"}},
    {"recompute_removed",
     [](Plan& plan) { remove_instruction(plan, run(plan, recompute, "f")); },
     {"launch of op 'g.backward'", "reads 'h' on the device: the value is not there"}},
    {"recompute_from_dropped_input",
     [](Plan& plan) { plan.instructions[run(plan, recompute, "f")].uses[0] = 2; },
     {"recompute of op 'f'", "reads 'x0' on the device: the value is not there"}},
    {"recompute_of_a_backward_op",
     [](Plan& plan) { launched(plan, "g.backward").kind = recompute; },
     {"recompute of op 'g.backward'", "replays what is no forward op"}},
    {"lane_wrong",
     [](Plan& plan) { plan.instructions[9].lane = LaneRole::d2h; },
     {"instruction 9 (prefetch of bucket 'W') is on the wrong lane"}},
    {"waits_form_a_cycle",
     [](Plan& plan) {
       launched(plan, "embed").waits.push_back({3, 0});
     },
     {"deadlock"}},
    {"wait_for_itself",
     [](Plan& plan) {
       launched(plan, "embed").waits.push_back({2, 0});
     },
     {"deadlock"}},
    {"waits_across_lanes_form_a_cycle",
     [](Plan& plan) {
       plan.instructions[0].waits.push_back({transfer_of(plan, offload, "x0"), 0});
     },
     {"deadlock"}},
    {"wait_for_what_is_enqueued_later",
     [](Plan& plan) {
       plan.instructions[4].waits.push_back({6, 0});
     },
     {"instruction 4 (offload of bucket 'x0') waits for instruction 6 (launch of op 'head'), which is "
      "enqueued later"}},
    {"end_before_last_use",
     [](Plan& plan) { plan.lifetimes[9].end = run(plan, launch, "g.backward"); },
     {"lifetime 9 of bucket 'dx' ends with instruction 12", "launch of op 'f.backward'"}},
    {"end_is_no_use",
     [](Plan& plan) { plan.lifetimes[9].end = run(plan, launch, "square"); },
     {"lifetime 9 of bucket 'dx' ends with instruction 14", "does not use it"}},
    {"op_launched_twice",
     [](Plan& plan) { insert_copy(plan, run(plan, launch, "head"), run(plan, launch, "head")); },
     {"op 'head' is launched 2 times"}},
    {"op_not_launched",
     [](Plan& plan) { remove_instruction(plan, run(plan, launch, "head")); },
     {"op 'head' is launched 0 times"}},
    {"ops_out_of_order",
     [](Plan& plan) { move_instruction(plan, run(plan, launch, "square"), run(plan, launch, "f.backward")); },
     {"launch of op 'f.backward'", "out of order"}},
    {"op_runs_on_the_host",
     [](Plan& plan) {
       launched(plan, "square").uses.clear();
       launched(plan, "square").lane = LaneRole::host;
       launched(plan, "square").kind = commit;
     },
     {"commit of op 'square'", "what is no update op"}},
    {"loss_offload_removed",
     [](Plan& plan) { remove_instruction(plan, transfer_of(plan, offload, "loss")); },
     {"the loss 'loss' does not reach the host"}},
    {"lifetime_unused",
     [](Plan& plan) {
       plan.lifetimes.push_back({bucket_named(plan, "h"), 0, 1, 1024, 2});
     },
     {"lifetime 12 of bucket 'h' is never used"}},
};

INSTANTIATE_TEST_SUITE_P(Validate, BrokenStreamedPlan, ::testing::ValuesIn(streamed_breaks),
                         [](const auto& info) { return info.param.name; });

class BrokenResidentPlan : public ::testing::TestWithParam<Break> {};

TEST_P(BrokenResidentPlan, IsRejectedForTheRightReason) {
  Plan plan = testing::small_resident_plan();
  GetParam().apply(plan);
  settle_totals(plan);
  expect_finding(plan, GetParam());
}

const std::vector<Break> resident_breaks{
    {"update_applied_twice",
     [](Plan& plan) { insert_copy(plan, run(plan, commit, "adamw"), run(plan, commit, "adamw") + 1); },
     {"commit of op 'adamw'", "reads 'W' on the device: the update is applied twice"}},
    {"update_removed",
     [](Plan& plan) { remove_instruction(plan, run(plan, commit, "adamw")); },
     {"launch of op 'f'", "reads 'W' on the device: stale parameter"}},
    {"update_is_a_launch",
     [](Plan& plan) { plan.instructions[run(plan, commit, "adamw")].kind = launch; },
     {"launch of op 'adamw'", "changes weights and is no commit"}},
    {"update_before_the_gate",
     [](Plan& plan) { move_instruction(plan, run(plan, commit, "adamw"), plan.gate); },
     {"commit of op 'adamw'", "changes weights before the gate"}},
    {"update_on_a_host_that_has_nothing",
     [](Plan& plan) {
       plan.instructions[run(plan, commit, "adamw")] = {
           commit, LaneRole::host, op_named(graph(), "adamw"), no_id, {}, {}};
     },
     {"commit of op 'adamw'", "needs 'W' on the host"}},
    {"gate_does_not_wait",
     [](Plan& plan) { plan.instructions[plan.gate].waits.clear(); },
     {"the gate, instruction 11", "does not wait for instruction 8 (launch of op 'f.backward')"}},
    {"scale_from_the_step_before",
     [](Plan& plan) { move_instruction(plan, transfer_of(plan, prefetch, "clip"), plan.gate); },
     {"commit of op 'adamw'", "reads 'clip' on the device: the value is one of an earlier step"}},
    {"scale_not_waited_for",
     [](Plan& plan) { plan.instructions[run(plan, commit, "adamw")].waits.clear(); },
     {"lifetime 10 of bucket 'clip'", "prefetch of bucket 'clip'", "not ordered"}},
    {"resident_bytes_shared",
     [](Plan& plan) { plan.lifetimes[2].offset = plan.lifetimes[1].offset; },
     {"lifetime 1 of bucket 'W' and lifetime 2 of bucket 'x0' overlap"}},
    {"resident_does_not_span",
     [](Plan& plan) { plan.lifetimes[1].last = 8; },
     {"lifetime 1 of bucket 'W' is resident but does not span the step"}},
    {"resident_with_an_end",
     [](Plan& plan) { plan.lifetimes[1].end = run(plan, commit, "adamw"); },
     {"lifetime 1 of bucket 'W' is resident but has an end"}},
    {"no_end", [](Plan& plan) { plan.lifetimes[2].end = no_id; }, {"lifetime 2 of bucket 'x0' has no end"}},
    {"bytes_overwritten_before_the_read",
     [](Plan& plan) { plan.lifetimes[4].offset = plan.lifetimes[3].offset; },
     {"launch of op 'g.backward'", "reads 'h' on the device: the value is not there"}},
};

INSTANTIATE_TEST_SUITE_P(Validate, BrokenResidentPlan, ::testing::ValuesIn(resident_breaks),
                         [](const auto& info) { return info.param.name; });

TEST(Validate, RandomGraphsHaveAllThatTheyPromise) {
  std::size_t in_place_forward = 0, in_place_backward = 0, accumulated = 0, workspaces = 0, tied = 0,
              pairs = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = testing::random_graph(seed);
    ASSERT_NO_THROW(check(graph)) << seed;
    EXPECT_EQ(graph, testing::random_graph(seed));
    std::vector<int> uses(graph.tensors.size(), 0);
    for (const Op& op : graph.ops) {
      const bool forward = op.phase == Phase::forward;
      accumulated += op.kernel == "accumulate" ? 1U : 0U;
      if (op.kernel != "mix") continue;
      (forward ? in_place_forward : in_place_backward) += op.may_alias.size();
      pairs += forward && op.writes.size() > 1 ? 1U : 0U;
      for (const TensorId id : op.writes)
        workspaces += graph.tensor(id).kind == TensorKind::workspace ? 1U : 0U;
      for (const TensorId id : op.reads) {
        if (forward && graph.tensor(id).kind == TensorKind::parameter) tied += ++uses[id] == 2 ? 1U : 0U;
      }
    }
  }
  for (const std::size_t count :
       {in_place_forward, in_place_backward, accumulated, workspaces, tied, pairs}) {
    EXPECT_GT(count, 100U);
  }
}

}  // namespace
}  // namespace stowage
