#include "tools/report/tally.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

#include "stowage/undo_record.h"
#include "tests/support/literal_plan.h"

namespace stowage {
namespace {

TEST(Tally, CountsEachFate) {
  const test::LiteralPlan literal;
  const PlanTally where = tally(literal.graph, literal.plan);
  EXPECT_EQ(where.resident.bytes, 40U);
  EXPECT_EQ(where.held.bytes, 80U);
  EXPECT_EQ(where.streamed.bytes, 120U);
  EXPECT_EQ(where.optimizer_host.count, 1U);
  EXPECT_EQ(where.optimizer_device.count, 0U);
  EXPECT_EQ(where.kept.count, 1U);
  EXPECT_EQ(where.kept.bytes, 400U);
  EXPECT_EQ(where.recomputed.bytes, 800U);
  EXPECT_EQ(where.offloaded.bytes, 1200U);
}

// A parameter of 4 elements in bf16: low halves and moments share a bucket.
TEST(HostTally, SaysWhatHostBytesHold) {
  Graph graph;
  Plan plan;
  const auto bucket = [&](TensorKind kind, std::initializer_list<std::pair<const char*, DataType>> tensors) {
    Bucket added;
    added.kind = kind;
    added.places = {{MemoryId::host, false}};
    for (const auto& [name, type] : tensors) {
      graph.tensors.push_back({name, type, {4}, kind, {}});
      added.tensors.push_back({static_cast<TensorId>(graph.tensors.size() - 1), added.bytes});
      added.bytes += graph.tensors.back().bytes();
    }
    plan.buckets.push_back(added);
    return plan.buckets.size() - 1;
  };
  bucket(TensorKind::parameter, {{"w", DataType::bf16}});
  bucket(TensorKind::optimizer_state,
         {{"w.adam_m", DataType::f32}, {"w.adam_v", DataType::f32}, {"w.low", DataType::i16}});
  bucket(TensorKind::gradient, {{"w.grad", DataType::bf16}});
  bucket(TensorKind::activation, {{"x", DataType::bf16}, {"y", DataType::bf16}});
  bucket(TensorKind::input, {{"tokens", DataType::i32}});
  plan.buckets[bucket(TensorKind::activation, {{"on the device", DataType::f32}})].places.clear();
  plan.undo_bytes = 8;
  const HostTally tally = host_tally(graph, plan);
  EXPECT_EQ(tally.weights, 16U);
  EXPECT_EQ(tally.moments, 32U);
  EXPECT_EQ(tally.gradients, 8U);
  EXPECT_EQ(tally.activations, 16U);
  EXPECT_EQ(tally.inputs, 16U);
  EXPECT_EQ(tally.undo, 8U);
  EXPECT_EQ(tally.total(), 96U);
  EXPECT_EQ(host_text(tally, parameter_count(graph).all),
            "24.00 bytes a parameter: weights 4.00, moments 8.00, gradients 2.00, undo records 2.00, "
            "activations 4.00, inputs 4.00");
  plan.buckets[2].places[0].ring_offset = 0;
  plan.ring_bytes = 4;
  EXPECT_EQ(host_tally(graph, plan).gradients, 4U);
  EXPECT_EQ(host_tally(graph, plan).total(), 92U);
}

TEST(PlanTally, CountsUpdatesInBackward) {
  Plan plan;
  plan.ring_bytes = 2_MiB;
  plan.gate = 1;
  const Instruction update{InstructionKind::commit, LaneRole::host};
  plan.instructions = {update, {InstructionKind::gate, LaneRole::host}, update, update};
  PlanTally counted = tally(Graph{}, plan);
  EXPECT_EQ(counted.in_backward, 1U);
  EXPECT_EQ(counted.host_updates, 3U);
  EXPECT_EQ(updates_text(counted),
            "1 of 3 on the host are made in backward, for good; their gradients take turns in 2.00 MiB");
  counted.ring = 0;  // each has bytes of its own
  EXPECT_EQ(updates_text(counted), "1 of 3 on the host are made in backward, for good");
}

// Of three updates one is early: with its undo record, and its commit does nothing if no step is clipped. One
// is made on the device.
TEST(HostTraffic, CountsUpdatesWithTheirRecordsAndCopies) {
  Graph graph;
  graph.tensors.push_back({"w", DataType::bf16, {4096}, TensorKind::parameter, {}});
  graph.ops.resize(4);
  for (OpId op = 0; op < 4; ++op) {
    graph.ops[op].kernel = op == 3 ? "clip" : "adamw";
    graph.ops[op].phase = Phase::update;
    graph.ops[op].cost.bytes = 1e9 * (op + 1);
    graph.ops[op].writes = {0};
  }
  graph.ops[3].writes.clear();
  Plan plan;
  plan.h2d_bytes = 5'000'000'000;
  plan.d2h_bytes = 2'500'000'000;
  const auto add = [&](InstructionKind kind, LaneRole lane, OpId op) {
    plan.instructions.push_back({kind, lane});
    plan.instructions.back().op = op;
  };
  add(InstructionKind::speculate, LaneRole::host, 0);
  add(InstructionKind::gate, LaneRole::host, 3);
  add(InstructionKind::commit, LaneRole::host, 0);
  add(InstructionKind::commit, LaneRole::host, 1);
  add(InstructionKind::commit, LaneRole::compute, 2);
  const HostTraffic traffic = host_traffic(graph, plan, PeerPath::apart);
  EXPECT_EQ(traffic.updates, 7'000'000'000 + undo_record_bytes(4096));
  EXPECT_EQ(traffic.total(), traffic.updates + 7'500'000'000);
  EXPECT_EQ(text(traffic), "7.0 GB by updates, 5.0 GB in, 2.5 GB out");
  graph.ops[2].cost.peer_bytes = 1e9;
  add(InstructionKind::launch, LaneRole::peer, 2);
  EXPECT_EQ(host_traffic(graph, plan, PeerPath::link).peers, 0U);
  EXPECT_EQ(text(host_traffic(graph, plan, PeerPath::host_memory)),
            "7.0 GB by updates, 5.0 GB in, 2.5 GB out, 2.0 GB from the other devices");
}

TEST(Tally, OfARankCountsWhatItGathers) {
  Graph graph;
  graph.share.ranks = 2;
  graph.tensors.push_back({"w", DataType::f32, {8}, TensorKind::parameter, {}});
  graph.tensors.push_back({"w.whole", DataType::f32, {3, 5}, TensorKind::activation, {}});
  graph.tensors.push_back({"part of the norm", DataType::f64, {1}, TensorKind::activation, {}});
  graph.ops.resize(2);
  graph.ops[1].kernel = graph.ops[0].kernel = "gather";
  graph.ops[0].reads = {0};
  graph.ops[1].reads = graph.ops[1].writes = {2};
  graph.ops[0].writes = {1};
  graph.ops[0].cost.peer_bytes = 32;
  graph.ops[1].cost.peer_bytes = 7;
  EXPECT_EQ(parameter_count(graph).all, 15U);
  Plan plan;
  for (const auto& [kind, op] :
       {std::pair{InstructionKind::launch, OpId{0}}, std::pair{InstructionKind::recompute, OpId{0}},
        std::pair{InstructionKind::launch, OpId{1}}, std::pair{InstructionKind::prefetch, OpId{0}}}) {
    plan.instructions.emplace_back().kind = kind;
    plan.instructions.back().op = op;
  }
  EXPECT_EQ(peer_bytes(graph, plan), 2U * 32 + 7);
}

TEST(Tally, IsTold) {
  EXPECT_EQ(text(Tally{3, 2048}), "3 (2.00 KiB)");
  const test::LiteralPlan literal;
  EXPECT_EQ(parameter_count(literal.graph).all, 60U);
}

}  // namespace
}  // namespace stowage
