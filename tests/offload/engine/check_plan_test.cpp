#include "offload/engine/check_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "stowage/error.h"
#include "stowage/planner.h"
#include "stowage/undo_record.h"
#include "tests/offload/engine/tiny_step.h"
#include "tests/support/expect_refused.h"

namespace stowage {
namespace {

using ::testing::HasSubstr;
using namespace stowage::testing;

struct Breakage {
  std::function<void(Plan&)> apply;
  const char* complaint;
};

TEST(CheckPlan, AcceptsPlansThatHangTogether) {
  EXPECT_NO_THROW(check_executable(tiny_graph(), tiny_streamed_plan()));
  EXPECT_NO_THROW(check_executable(tiny_graph(), tiny_resident_plan()));
}

TEST(CheckPlan, NamesWhatDoesNot) {
  const Breakage breakages[] = {
      {[](Plan& p) { p.buckets[0].bytes = 0; }, "bucket 'x' is empty"},
      {[](Plan& p) { p.buckets[0].tensors[0].tensor = 99; }, "bucket 'x' holds unknown tensor 99"},
      {[](Plan& p) { p.buckets[1].tensors[0].offset = 4; }, "'w' lies outside bucket 'w'"},
      {[](Plan& p) { p.buckets[1].tensors[0].offset = ~Bytes{0}; }, "'w' lies outside bucket 'w'"},
      {[](Plan& p) { p.buckets[1].tensors.clear(); }, "tensor 'w' is in no bucket"},
      {[](Plan& p) { p.lifetimes[0].bucket = 99; }, "unknown bucket 99"},
      {[](Plan& p) { p.lifetimes[0].offset = p.device_peak_bytes; }, "bucket 'w' ends past the arena"},
      {[](Plan& p) { p.lifetimes[0].offset = ~Bytes{0}; }, "bucket 'w' ends past the arena"},
      {[](Plan& p) { p.lifetimes[0].offset = 64; },
       "begins at byte 64 of the arena, which is no multiple of 256"},
      {[](Plan& p) {
         p.buckets[1].bytes += 4;
         p.buckets[1].tensors[0].offset = 4;
       },
       "'w' lies at byte 4 of bucket 'w', which is no multiple of"},
      {[](Plan& p) { p.lifetimes[0].end = 99; }, "ends with unknown instruction 99"},
      {[](Plan& p) { p.instructions[2].op = 99; }, "unknown op 99"},
      {[](Plan& p) { p.instructions[2].uses[0] = 99; }, "unknown lifetime 99"},
      {[](Plan& p) { p.instructions[0].lifetime = 99; }, "unknown lifetime 99"},
      {[](Plan& p) { p.instructions[2].lane = LaneRole::host; }, "of kind launch is on the host lane"},
      {[](Plan& p) { p.buckets[1].places.front().pinned = false; }, "bucket 'w' is moved"},
      {[](Plan& p) {
         p.instructions[2].waits = {{2, 0}};
       },
       "is not enqueued by then"},
      {[](Plan& p) {
         p.instructions[2].waits = {{0, 2}};
       },
       "is not enqueued by then"},
      {[](Plan& p) {
         p.instructions[2].waits = {{99, 1}};
       },
       "is not enqueued by then"},
      {[](Plan& p) { p.gate = no_id; }, "no gate"},
      {[](Plan& p) { p.gate = 7; }, "gate is of kind launch"},
      {[](Plan& p) { std::swap(p.instructions[p.gate].op, p.instructions.back().op); },
       "not the op that writes the gradient norm"},
      {[](Plan& p) { p.instructions.back().kind = InstructionKind::gate; }, "is a second gate"},
      {[](Plan& p) { p.instructions[2].kind = InstructionKind::commit; },
       "before the gate, is of kind commit"},
      {[](Plan& p) { p.instructions.push_back(p.instructions[3]); }, "behind the gate, is of kind offload"},
      {[](Plan& p) { p.buckets[1].places.front().ring_offset = 0; },
       "'w' ends past the gradient ring of 0 bytes"},
      {[](Plan& p) {
         p.ring_bytes = 1_MiB;
         p.buckets[1].places.front().ring_offset = 64;
       },
       "'w' begins at byte 64 of the gradient ring, which is no multiple of 256"},
      {[](Plan& p) {
         p.ring_bytes = 1_MiB;
         p.buckets[1].places.front().ring_offset = 0;
         p.buckets[1].places.front().ring_span = 1013;
       },
       "'w' takes turns in 1013 bytes of the gradient ring, which is no multiple of 256"},
      {[](Plan& p) { p.buckets[3].places.clear(); }, "bucket 'loss' is moved"},
      {[](Plan& p) { p.buckets[8].places.clear(); }, "gradient norm has no place"},
  };
  for (const Breakage& breakage : breakages) {
    Plan plan = tiny_streamed_plan();
    breakage.apply(plan);
    try {
      check_executable(tiny_graph(), plan);
      ADD_FAILURE() << "accepted: " << breakage.complaint;
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.what(), HasSubstr(breakage.complaint));
    }
  }
}

constexpr Bytes record = undo_record_bytes(tiny_elements);

// The streamed plan with its update begun before the gate: instruction 10, the gate is 11, the host step 12.
Plan tiny_speculating_plan() {
  Plan plan = tiny_streamed_plan();
  Instruction speculation = plan.instructions.back();
  speculation.kind = InstructionKind::speculate;
  speculation.waits = {{8, 0}};
  speculation.part = {0, record};
  plan.instructions.insert(plan.instructions.begin() + plan.gate, speculation);
  ++plan.gate;
  plan.instructions.front().waits = {{plan.gate + 1, 1}};
  plan.undo_bytes = record;
  plan.host_bytes += record;
  return plan;
}

TEST(CheckPlan, AcceptsASpeculatedUpdate) {
  EXPECT_EQ(validate(tiny_graph(), tiny_speculating_plan(), {}), std::vector<std::string>{});
  EXPECT_NO_THROW(check_executable(tiny_graph(), tiny_speculating_plan()));
}

TEST(CheckPlan, NamesWhatCouldNotBeTakenBack) {
  const Breakage breakages[] = {
      {[](Plan& p) {
         std::swap(p.instructions[10], p.instructions[11]);
         p.gate = 10;
       },
       "speculat"},
      {[](Plan& p) {
         p.instructions.pop_back();
         p.instructions.front().waits.clear();
       },
       "'adamw' is speculated and never committed on the host"},
      {[](Plan& p) { p.instructions.back().lane = LaneRole::compute; },
       "'adamw' is speculated and never committed on the host"},
      {[](Plan& p) {
         Instruction again = p.instructions[10];
         again.part = {record, 2 * record};
         p.instructions.insert(p.instructions.begin() + 10, again);
         ++p.gate;
         p.instructions.front().waits = {{p.gate + 1, 1}};
         p.undo_bytes = 2 * record;
       },
       "'adamw' is speculated twice"},
      {[](Plan& p) { p.instructions[10].op = 1; }, "never committed on the host"},
      {[](Plan& p) { p.instructions[10].part.end = record - 1; }, "'adamw' has an undo record of bytes 0 to"},
      {[](Plan& p) { p.instructions[10].part.end = record + 64; },
       "'adamw' has an undo record of bytes 0 to"},
      {[](Plan& p) { p.undo_bytes = record - 1; }, "'adamw' has an undo record of bytes 0 to"},
      {[](Plan& p) {
         p.instructions[10].part = {64, 64 + record};
       },
       "'adamw' has an undo record of bytes 64 to"},
      {[](Plan& p) {
         p.instructions[10].part = {record, 0};
       },
       "'adamw' has an undo record of bytes"},
      {[](Plan& p) { p.instructions[10].lane = LaneRole::compute; },
       "of kind speculate is on the compute lane"},
  };
  for (const Breakage& breakage : breakages) {
    Plan plan = tiny_speculating_plan();
    breakage.apply(plan);
    try {
      check_executable(tiny_graph(), plan);
      ADD_FAILURE() << "accepted: " << breakage.complaint;
    } catch (const InvalidInput& error) {
      EXPECT_THAT(error.what(), HasSubstr(breakage.complaint));
    }
  }
}

TEST(CheckPlan, WantsNothingSpeculatedWithTheOptimizerInBackward) {
  Graph graph = tiny_graph();
  for (Op& op : graph.ops)
    if (op.kernel == "clip") op.attributes["clip"] = 0.0;
  Plan plan = tiny_speculating_plan();
  EXPECT_NO_THROW(check_executable(graph, plan));
  plan.optimizer_in_backward = true;
  test::expect_refused([&] { check_executable(graph, plan); },
                       "'adamw' is speculated with the optimizer in backward");
}

// A second parameter, whose update writes its record over that of the first.
TEST(CheckPlan, WantsUndoRecordsApart) {
  Graph graph = tiny_graph();
  Op second = graph.ops[4];
  second.name = "second";
  graph.ops.push_back(second);
  Plan plan = tiny_speculating_plan();
  Instruction speculation = plan.instructions[10];
  Instruction commit = plan.instructions.back();
  speculation.op = commit.op = 5;
  speculation.part = {record, 2 * record};
  plan.undo_bytes = 2 * record;
  plan.instructions.insert(plan.instructions.begin() + 11, speculation);
  plan.instructions.push_back(commit);
  ++plan.gate;
  plan.instructions.front().waits = {{plan.gate + 1, 1}};
  EXPECT_NO_THROW(check_executable(graph, plan));
  plan.instructions[11].part = {record - 64, 2 * record - 64};
  try {
    check_executable(graph, plan);
    FAIL();
  } catch (const InvalidInput& error) {
    EXPECT_THAT(error.what(), HasSubstr("undo records share byte"));
  }
}

// An input that no op reads needs no place; one that is read does.
TEST(CheckPlan, WantsAPlaceForInputsThatAreRead) {
  Graph graph = tiny_graph();
  Plan plan = tiny_resident_plan();
  graph.tensors.push_back(graph.tensors[0]);
  graph.tensors.back().name = "unread";
  plan.buckets.push_back(
      {"unread", TensorKind::input, Residency::host, {}, graph.tensors[0].bytes(), {{9, 0}}});
  EXPECT_NO_THROW(check_executable(graph, plan));
  graph.ops[1].reads.push_back(9);
  EXPECT_THROW(check_executable(graph, plan), InvalidInput);
}

}  // namespace
}  // namespace stowage
