#include "tests/offload/plan/validate/small_plans.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "stowage/placement.h"
#include "stowage/undo_record.h"

namespace stowage::testing {
namespace {

Instruction prefetch(LifetimeId lifetime, std::vector<Wait> waits = {}) {
  return {InstructionKind::prefetch, LaneRole::h2d, no_id, lifetime, {}, std::move(waits)};
}
Instruction offload(LifetimeId lifetime, std::vector<Wait> waits) {
  return {InstructionKind::offload, LaneRole::d2h, no_id, lifetime, {}, std::move(waits)};
}
Instruction launch(OpId op, std::vector<LifetimeId> uses, std::vector<Wait> waits = {}) {
  return {InstructionKind::launch, LaneRole::compute, op, no_id, std::move(uses), std::move(waits)};
}
Instruction recompute(OpId op, std::vector<LifetimeId> uses, std::vector<Wait> waits = {}) {
  return {InstructionKind::recompute, LaneRole::compute, op, no_id, std::move(uses), std::move(waits)};
}
Instruction gate(OpId op, std::vector<Wait> waits = {}) {
  return {InstructionKind::gate, LaneRole::host, op, no_id, {}, std::move(waits)};
}
Instruction commit(OpId op, LaneRole lane, std::vector<LifetimeId> uses = {}, std::vector<Wait> waits = {}) {
  return {InstructionKind::commit, lane, op, no_id, std::move(uses), std::move(waits)};
}

enum : TensorId { tokens, x0, w, h, x1, loss, dx1, dh, w_grad, sum, clip, m, v };

std::vector<Bucket> small_buckets() {
  using enum Residency;
  return {{"tokens", TensorKind::input, held, {{MemoryId::host, true}}, 64, {{tokens, 0}}},
          {"W", TensorKind::parameter, streamed, {{MemoryId::host, true}}, 256, {{w, 0}}},
          {"x0", TensorKind::activation, offloaded, {{MemoryId::host, true}}, 256, {{x0, 0}}},
          {"h", TensorKind::activation, recomputed, {}, 256, {{h, 0}}},
          {"x1", TensorKind::activation, transient, {}, 256, {{x1, 0}}},
          {"loss", TensorKind::activation, transient, {{MemoryId::host, true}}, 8, {{loss, 0}}},
          {"dx", TensorKind::activation, transient, {}, 256, {{dx1, 0}, {dh, 0}}},
          {"W.grad", TensorKind::gradient, transient, {{MemoryId::host, true}}, 256, {{w_grad, 0}}},
          {"sum", TensorKind::activation, transient, {{MemoryId::host, true}}, 8, {{sum, 0}}},
          {"clip", TensorKind::activation, host, {{MemoryId::host, false}}, 16, {{clip, 0}}},
          {"state", TensorKind::optimizer_state, host, {{MemoryId::host, false}}, 512, {{m, 0}, {v, 256}}}};
}

Op op(std::string name, Phase phase, std::uint32_t unit, std::vector<TensorId> reads,
      std::vector<TensorId> writes) {
  Op result;
  result.kernel = name;
  result.name = std::move(name);
  result.phase = phase;
  result.unit = unit;
  result.reads = std::move(reads);
  result.writes = std::move(writes);
  return result;
}

// Calls `change` on every place where an instruction id stands.
void for_each_id(Plan& plan, auto&& change) {
  for (Lifetime& lifetime : plan.lifetimes) change(lifetime.end);
  for (Instruction& instruction : plan.instructions) {
    for (Wait& wait : instruction.waits) change(wait.instruction);
  }
  change(plan.gate);
}

template <class Match>
InstructionId find(const Plan& plan, int number, const std::string& what, Match&& match) {
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    if (match(plan.instructions[id]) && number-- == 0) return id;
  }
  ADD_FAILURE() << "no " << what;
  return 0;
}

// Returns the last instruction but `except` that uses the lifetime; 0 if there is none.
InstructionId last_use(const Plan& plan, LifetimeId lifetime, InstructionId except) {
  InstructionId last = 0;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    const auto& uses = instruction.uses;
    const bool used =
        instruction.lifetime == lifetime || std::find(uses.begin(), uses.end(), lifetime) != uses.end();
    if (used && id != except) last = id;
  }
  return last;
}

}  // namespace

Graph small_graph() {
  using enum TensorKind;
  Graph graph;
  graph.tensors = {
      {"tokens", DataType::i32, {16}, input, {}},     {"x0", DataType::f32, {64}, activation, {}},
      {"W", DataType::f32, {64}, parameter, {}},      {"h", DataType::f32, {64}, activation, {}},
      {"x1", DataType::f32, {64}, activation, {}},    {"loss", DataType::f64, {}, activation, {}},
      {"dx1", DataType::f32, {64}, activation, {}},   {"dh", DataType::f32, {64}, activation, {}},
      {"W.grad", DataType::f32, {64}, gradient, {}},  {"sum", DataType::f64, {}, activation, {}},
      {"clip", DataType::f64, {2}, activation, {}},   {"m", DataType::f32, {64}, optimizer_state, {}},
      {"v", DataType::f32, {64}, optimizer_state, {}}};
  graph.ops = {op("embed", Phase::forward, 0, {tokens}, {x0}),
               op("f", Phase::forward, 1, {x0, w}, {h}),
               op("g", Phase::forward, 1, {h}, {x1}),
               op("head", Phase::forward, 2, {x1}, {loss}),
               op("head.backward", Phase::backward, 2, {x1}, {dx1}),
               op("g.backward", Phase::backward, 1, {h, dx1}, {dh}),
               op("f.backward", Phase::backward, 1, {x0, dh}, {w_grad}),
               op("square", Phase::backward, 1, {w_grad}, {sum}),
               op("clip", Phase::update, no_id, {sum}, {clip}),
               op("adamw", Phase::update, no_id, {w, w_grad, m, v, clip}, {w, m, v})};
  graph.ops[5].may_alias = {{0, 1}};
  graph.unit_names = {"embed", "block", "head"};
  graph.loss = loss;
  graph.clip = clip;
  return graph;
}

Plan small_streamed_plan() {
  Plan plan;
  plan.policy = "auto";
  plan.buckets = small_buckets();
  plan.lifetimes = {{0, 0, 1, 768, 2},  {1, 0, 2, 256, 3},   {2, 0, 3, 0, 4},  {3, 1, 3, 512, 5},
                    {4, 2, 5, 256, 8},  {5, 3, 5, 512, 7},   {1, 4, 6, 0, 11}, {2, 4, 8, 768, 13},
                    {3, 5, 7, 256, 12}, {6, 4, 8, 1024, 13}, {7, 7, 9, 0, 15}, {8, 8, 9, 512, 16}};
  plan.instructions = {prefetch(0),                         // 0: tokens
                       prefetch(1, {{18, 1}}),              // 1: W, updated by the step before
                       launch(0, {0, 2}, {{0, 0}}),         // 2: embed
                       launch(1, {2, 1, 3}, {{1, 0}}),      // 3: f
                       offload(2, {{3, 0}}),                // 4: x0
                       launch(2, {3, 4}),                   // 5: g
                       launch(3, {4, 5}),                   // 6: head
                       offload(5, {{6, 0}}),                // 7: loss
                       launch(4, {4, 9}),                   // 8: head.backward
                       prefetch(6, {{4, 0}}),               // 9: W, where x0 was
                       prefetch(7),                         // 10: x0
                       recompute(1, {7, 6, 8}, {{10, 0}}),  // 11: f
                       launch(5, {8, 9}),                   // 12: g.backward
                       launch(6, {7, 9, 10}),               // 13: f.backward
                       launch(7, {10, 11}, {{7, 0}}),       // 14: square, where the loss was
                       offload(10, {{14, 0}}),              // 15: W.grad
                       offload(11, {}),                     // 16: sum
                       gate(8, {{16, 0}}),                  // 17: clip
                       commit(9, LaneRole::host)};          // 18: adamw
  plan.gate = 17;
  plan.device_peak_bytes = 1280;
  plan.live_peak_bytes = 1032;
  plan.host_bytes = 1376;
  plan.pinned_bytes = 848;
  plan.h2d_bytes = 832;
  plan.d2h_bytes = 528;
  return plan;
}

Plan small_speculating_plan() {
  constexpr OpId adamw = 9;
  constexpr InstructionId at = 17;
  Plan plan = small_streamed_plan();
  const Bytes record = undo_record_bytes(64);
  for_each_id(plan, [](InstructionId& id) {
    if (id != no_id && id >= at) ++id;
  });
  plan.instructions.insert(
      plan.instructions.begin() + at,
      {InstructionKind::speculate, LaneRole::host, adamw, no_id, {}, {{15, 0}}, {0, record}});
  plan.undo_bytes = record;
  plan.host_bytes += record;
  return plan;
}

Plan small_resident_plan() {
  Plan plan;
  plan.policy = "none";
  plan.buckets = small_buckets();
  for (const BucketId id : {1U, 10U}) plan.buckets[id].residency = Residency::resident;
  for (const BucketId id : {1U, 2U, 7U, 10U}) plan.buckets[id].places.clear();
  for (const BucketId id : {2U, 3U, 9U}) plan.buckets[id].residency = Residency::transient;
  plan.buckets[9].places = {{MemoryId::host, true}};
  plan.lifetimes = {{0, 0, 1, 2048, 1},  {1, 0, 9, 0, no_id},    {2, 0, 7, 768, 8},  {3, 1, 6, 1024, 7},
                    {4, 2, 5, 1280, 6},  {5, 3, 9, 2304, 5},     {6, 4, 7, 1536, 8}, {7, 6, 9, 1792, 13},
                    {8, 7, 9, 2560, 10}, {10, 0, 9, 256, no_id}, {9, 8, 9, 2816, 13}};
  plan.instructions = {prefetch(0),                                              // 0: tokens
                       launch(0, {0, 2}, {{0, 0}}),                              // 1: embed
                       launch(1, {2, 1, 3}),                                     // 2: f
                       launch(2, {3, 4}),                                        // 3: g
                       launch(3, {4, 5}),                                        // 4: head
                       offload(5, {{4, 0}}),                                     // 5: loss
                       launch(4, {4, 6}),                                        // 6: head.backward
                       launch(5, {3, 6}),                                        // 7: g.backward
                       launch(6, {2, 6, 7}),                                     // 8: f.backward
                       launch(7, {7, 8}),                                        // 9: square
                       offload(8, {{9, 0}}),                                     // 10: sum
                       gate(8, {{10, 0}}),                                       // 11: clip
                       prefetch(10),                                             // 12: clip
                       commit(9, LaneRole::compute, {1, 7, 9, 10}, {{12, 0}})};  // 13: adamw
  plan.gate = 11;
  plan.device_peak_bytes = 2832;
  plan.live_peak_bytes = 1800;
  plan.host_bytes = 96;
  plan.pinned_bytes = 96;
  plan.h2d_bytes = 80;
  plan.d2h_bytes = 16;
  return plan;
}

TensorId tensor_named(const Graph& graph, const std::string& name) {
  for (TensorId id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensors[id].name == name) return id;
  }
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

OpId op_named(const Graph& graph, const std::string& name) {
  for (OpId id = 0; id < graph.ops.size(); ++id) {
    if (graph.ops[id].name == name) return id;
  }
  ADD_FAILURE() << "no op " << name;
  return 0;
}

BucketId bucket_named(const Plan& plan, const std::string& name) {
  for (BucketId id = 0; id < plan.buckets.size(); ++id) {
    if (plan.buckets[id].name == name) return id;
  }
  ADD_FAILURE() << "no bucket " << name;
  return 0;
}

InstructionId run_of(const Graph& graph, const Plan& plan, InstructionKind kind, const std::string& op) {
  const OpId id = op_named(graph, op);
  return find(plan, 0, "run of " + op, [&](const Instruction& i) { return i.kind == kind && i.op == id; });
}

InstructionId transfer_of(const Plan& plan, InstructionKind kind, const std::string& bucket, int number) {
  const BucketId id = bucket_named(plan, bucket);
  return find(plan, number, "transfer of " + bucket, [&](const Instruction& i) {
    return i.kind == kind && plan.lifetimes[i.lifetime].bucket == id;
  });
}

void remove_instruction(Plan& plan, InstructionId id) {
  for (LifetimeId lifetime = 0; lifetime < plan.lifetimes.size(); ++lifetime) {
    if (plan.lifetimes[lifetime].end == id) plan.lifetimes[lifetime].end = last_use(plan, lifetime, id);
  }
  plan.instructions.erase(plan.instructions.begin() + id);
  for (Instruction& instruction : plan.instructions) {
    std::erase_if(instruction.waits, [&](const Wait& wait) { return wait.instruction == id; });
  }
  for_each_id(plan, [&](InstructionId& other) {
    if (other != no_id && other > id) --other;
  });
}

void insert_copy(Plan& plan, InstructionId id, InstructionId at) {
  Instruction copy = plan.instructions[id];
  copy.waits.clear();
  for_each_id(plan, [&](InstructionId& other) {
    if (other != no_id && other >= at) ++other;
  });
  plan.instructions.insert(plan.instructions.begin() + at, std::move(copy));
}

void move_instruction(Plan& plan, InstructionId from, InstructionId to) {
  const auto first = plan.instructions.begin();
  if (from < to) std::rotate(first + from, first + from + 1, first + to + 1);
  if (to < from) std::rotate(first + to, first + from, first + from + 1);
  for_each_id(plan, [&](InstructionId& other) {
    if (other == no_id) return;
    if (other == from) {
      other = to;
    } else if (from < other && other <= to) {
      --other;
    } else if (to <= other && other < from) {
      ++other;
    }
  });
}

void settle_totals(Plan& plan) {
  plan.h2d_bytes = plan.d2h_bytes = plan.host_bytes = plan.pinned_bytes = plan.device_peak_bytes = 0;
  for (const Instruction& instruction : plan.instructions) {
    if (instruction.kind == InstructionKind::speculate) plan.host_bytes += instruction.part.bytes();
    if (instruction.lifetime == no_id) continue;
    const Bytes bytes = plan.buckets[plan.lifetimes[instruction.lifetime].bucket].bytes;
    (instruction.kind == InstructionKind::prefetch ? plan.h2d_bytes : plan.d2h_bytes) += bytes;
  }
  for (const Bucket& bucket : plan.buckets) {
    plan.host_bytes += bucket.on_host() ? bucket.bytes : 0;
    plan.pinned_bytes += bucket.pinned() ? bucket.bytes : 0;
  }
  std::vector<PlacementItem> items;
  for (const Lifetime& lifetime : plan.lifetimes) {
    const Bytes bytes = plan.buckets[lifetime.bucket].bytes;
    plan.device_peak_bytes = std::max(plan.device_peak_bytes, lifetime.offset + bytes);
    items.push_back({lifetime.first, lifetime.last, bytes});
  }
  plan.live_peak_bytes = peak_live_bytes(items);
}

}  // namespace stowage::testing
