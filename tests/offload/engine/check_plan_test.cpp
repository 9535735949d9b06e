#include "offload/engine/checks.h"

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

// Puts bucket `id` into a gradient ring of 1 MiB.
void put_into_ring(Plan& plan, BucketId id, BucketPlace place) {
  place.memory = MemoryId::host;
  place.pinned = true;
  if (!place.ring_offset) place.ring_offset = 0;
  plan.buckets[id].places = {place};
  plan.ring_bytes = 1_MiB;
}

TEST(CheckPlan, AcceptsPlansThatHangTogether) {
  EXPECT_NO_THROW(check_executable(tiny_graph(), tiny_streamed_plan()));
  EXPECT_NO_THROW(check_executable(tiny_graph(), tiny_resident_plan()));
}

TEST(CheckPlan, NamesWhatDoesNot) {
  const Breakage breakages[] = {
      {[](Plan& p) { p.buckets[0].bytes = 0; },
       "tensor 'x' (4096 bytes at offset 0) does not fit in bucket 'x' (0 bytes)"},
      {[](Plan& p) { p.buckets[0].tensors[0].tensor = 99; },
       "bucket 'x' holds tensor 99 (which the graph lacks)"},
      {[](Plan& p) { p.buckets[1].tensors[0].offset = 4; }, "does not fit in bucket 'w'"},
      {[](Plan& p) { p.buckets[1].tensors[0].offset = ~Bytes{0}; }, "does not fit in bucket 'w'"},
      {[](Plan& p) { p.buckets[1].tensors.clear(); }, "bucket 'w' holds no tensor"},
      {[](Plan& p) { p.buckets[7].tensors[0].tensor = tiny_weight; }, "tensor 'w' is in two buckets"},
      {[](Plan& p) { p.lifetimes[0].bucket = 99; }, "lifetime 0 of bucket 99 (which the plan lacks)"},
      {[](Plan& p) { p.lifetimes[0].offset = 1_MiB; }, "lifetime 0 of bucket 'w' ends past the arena"},
      {[](Plan& p) { p.lifetimes[0].offset = ~Bytes{0} - 255; }, "lifetime 0 of bucket 'w' ends past"},
      {[](Plan& p) { p.lifetimes[0].offset = 64; },
       "lifetime 0 of bucket 'w' stands at 64, no multiple of 256"},
      {[](Plan& p) {
         p.buckets[1].bytes += 4;
         p.buckets[1].tensors[0].offset = 4;
       },
       "does not fit in bucket 'w' (4100 bytes) at a multiple of 256"},
      {[](Plan& p) { p.lifetimes[0].end = 99; },
       "lifetime 0 of bucket 'w' ends with instruction 99 (which the plan lacks)"},
      {[](Plan& p) { p.instructions[2].op = 99; },
       "instruction 2 (launch of op 99 (which the graph lacks)) has no op of the graph"},
      {[](Plan& p) { p.instructions[2].uses[0] = 99; },
       "instruction 2 (launch of op 'forward') uses lifetime 99"},
      {[](Plan& p) { p.instructions[0].lifetime = 99; }, "moves lifetime 99"},
      {[](Plan& p) { p.instructions[2].lane = LaneRole::host; },
       "instruction 2 (launch of op 'forward') is on the wrong lane"},
      {[](Plan& p) { p.buckets[1].places.front().pinned = false; },
       "needs a pinned place on the host, which bucket 'w' has not"},
      {[](Plan& p) {
         p.instructions[2].waits = {{2, 0}};
       },
       "which is enqueued later"},
      {[](Plan& p) {
         p.instructions[2].waits = {{0, 2}};
       },
       "2 steps back"},
      {[](Plan& p) {
         p.instructions[2].waits = {{99, 1}};
       },
       "waits for instruction 99 (which the plan lacks)"},
      {[](Plan& p) { p.gate = no_id; }, "the plan has no gate"},
      {[](Plan& p) { p.gate = 7; },
       "the gate, instruction 7 (launch of op 'square_sum'), does not run the clip op"},
      {[](Plan& p) { std::swap(p.instructions[p.gate].op, p.instructions.back().op); },
       "the gate, instruction 10 (gate of op 'adamw'), does not run the clip op"},
      {[](Plan& p) { p.instructions.back().kind = InstructionKind::gate; },
       "instruction 11 (gate of op 'adamw') is not the plan's gate"},
      {[](Plan& p) { p.instructions[2].kind = InstructionKind::commit; },
       "instruction 2 (commit of op 'forward') changes weights before the gate"},
      {[](Plan& p) { p.instructions.push_back(p.instructions[3]); },
       "instruction 12 (offload of bucket 'h') is behind the gate"},
      {[](Plan& p) { put_into_ring(p, 4, {}); }, "bucket 'dw' has bytes of the gradient ring, which are not"},
      {[](Plan& p) {
         p.optimizer_in_backward = true;
         put_into_ring(p, 4, {.ring_offset = 0});
         p.ring_bytes = 0;
       },
       "bucket 'dw' (4096 bytes) cannot stand at byte 0 of the gradient ring of 0 bytes"},
      {[](Plan& p) {
         p.optimizer_in_backward = true;
         put_into_ring(p, 4, {.ring_offset = 64});
       },
       "bucket 'dw' (4096 bytes) cannot stand at byte 64 of the gradient ring"},
      {[](Plan& p) {
         p.optimizer_in_backward = true;
         put_into_ring(p, 4, {.ring_offset = 0, .ring_span = 1013});
       },
       "bucket 'dw' (1013 bytes) cannot stand at byte 0 of the gradient ring"},
      {[](Plan& p) {
         p.optimizer_in_backward = true;
         p.buckets[1].kind = TensorKind::gradient;
         put_into_ring(p, 1, {.ring_offset = 0, .ring_span = 256});
       },
       "bucket 'w' has bytes of the gradient ring and holds 'w', which is no gradient"},
      {[](Plan& p) { p.alignment = 64; }, "the alignment 64 is no power of two from 256 up"},
      {[](Plan& p) { p.buckets[3].places.clear(); },
       "needs a pinned place on the host, which bucket 'loss' has not"},
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
       "instruction 11 (speculation of op 'adamw') speculates behind the gate"},
      {[](Plan& p) {
         p.instructions.pop_back();
         p.instructions.front().waits.clear();
       },
       "instruction 10 (speculation of op 'adamw') is never committed on the host"},
      {[](Plan& p) { p.instructions.back().lane = LaneRole::compute; },
       "instruction 10 (speculation of op 'adamw') is never committed on the host"},
      {[](Plan& p) {
         Instruction again = p.instructions[10];
         again.part = {record, 2 * record};
         p.instructions.insert(p.instructions.begin() + 10, again);
         ++p.gate;
         p.instructions.front().waits = {{p.gate + 1, 1}};
         p.undo_bytes = 2 * record;
       },
       "op 'adamw' is speculated twice"},
      {[](Plan& p) { p.instructions[10].op = 1; }, "speculates what is no update"},
      {[](Plan& p) { p.instructions[10].part.end = record - 1; },
       "(speculation of op 'adamw') has the undo record 0 to"},
      {[](Plan& p) { p.instructions[10].part.end = record + 64; },
       "(speculation of op 'adamw') has the undo record 0 to"},
      {[](Plan& p) { p.undo_bytes = record - 1; }, "(speculation of op 'adamw') has the undo record 0 to"},
      {[](Plan& p) {
         p.instructions[10].part = {64, 64 + record};
       },
       "(speculation of op 'adamw') has the undo record 64 to"},
      {[](Plan& p) {
         p.instructions[10].part = {record, 0};
       },
       "(speculation of op 'adamw') has the undo record"},
      {[](Plan& p) { p.instructions[10].lane = LaneRole::compute; },
       "(speculation of op 'adamw') is on the wrong lane"},
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
                       "(speculation of op 'adamw') speculates with the optimizer in backward");
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
    EXPECT_THAT(error.what(), HasSubstr("shares bytes of its undo record with instruction 10"));
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
