#include "offload/engine/check_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/graph/cost.h"
#include "src/graph/update_ops.h"
#include "stowage/error.h"

namespace stowage {
namespace {

template <class... Arguments>
void require(bool condition, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  if (condition) return;
  throw InvalidInput(
      "the plan cannot be executed: " + fmt::format(format, std::forward<Arguments>(arguments)...) +
      "; make the plan from this graph again");
}

void check_buckets(const Graph& graph, const Plan& plan) {
  std::vector<bool> placed(graph.tensors.size(), false);
  for (const Bucket& bucket : plan.buckets) {
    require(bucket.bytes > 0, "bucket '{}' is empty", bucket.name);
    for (const BucketTensor& member : bucket.tensors) {
      require(member.tensor < graph.tensors.size(), "bucket '{}' holds unknown tensor {}", bucket.name,
              member.tensor);
      const Bytes bytes = graph.tensor(member.tensor).bytes();
      require(bytes <= bucket.bytes && member.offset <= bucket.bytes - bytes, "'{}' lies outside bucket '{}'",
              graph.tensor(member.tensor).name, bucket.name);
      require(member.offset % tensor_alignment(bytes) == 0,
              "'{}' lies at byte {} of bucket '{}', which is no multiple of {}",
              graph.tensor(member.tensor).name, member.offset, bucket.name, tensor_alignment(bytes));
      placed[member.tensor] = true;
    }
  }
  for (TensorId id = 0; id < placed.size(); ++id) {
    const TensorId whole = graph.whole_of(id);
    const bool by_slices = graph.tensor(whole).kind == TensorKind::optimizer_state;
    if (whole != id && by_slices) placed[whole] = placed[id];
  }
  for (TensorId id = 0; id < placed.size(); ++id)
    require(placed[id], "tensor '{}' is in no bucket", graph.tensor(id).name);
}

void check_lifetimes(const Plan& plan) {
  for (LifetimeId id = 0; id < plan.lifetimes.size(); ++id) {
    const Lifetime& lifetime = plan.lifetimes[id];
    require(lifetime.bucket < plan.buckets.size(), "lifetime {} is of unknown bucket {}", id,
            lifetime.bucket);
    const Bucket& bucket = plan.buckets[lifetime.bucket];
    require(
        bucket.bytes <= plan.device_peak_bytes && lifetime.offset <= plan.device_peak_bytes - bucket.bytes,
        "a lifetime of bucket '{}' ends past the arena of {} bytes", bucket.name, plan.device_peak_bytes);
    require(lifetime.offset % most_tensor_alignment == 0,
            "a lifetime of bucket '{}' begins at byte {} of the arena, which is no multiple of {}",
            bucket.name, lifetime.offset, most_tensor_alignment);
    require(lifetime.end == no_id || lifetime.end < plan.instructions.size(),
            "a lifetime of bucket '{}' ends with unknown instruction {}", bucket.name, lifetime.end);
  }
}

void check_instruction(const Graph& graph, const Plan& plan, InstructionId id) {
  const Instruction& instruction = plan.instructions[id];
  require(runs_on(instruction.kind, instruction.lane), "instruction {} of kind {} is on the {} lane", id,
          to_string(instruction.kind), to_string(instruction.lane));
  if (!is_transfer(instruction.kind)) {
    require(instruction.op < graph.ops.size(), "instruction {} runs unknown op {}", id, instruction.op);
    require(instruction.kind != InstructionKind::recompute || graph.op(instruction.op).replayable,
            "op '{}' is computed again, and is not replayable", graph.op(instruction.op).name);
    for (LifetimeId use : instruction.uses)
      require(use < plan.lifetimes.size(), "op '{}' uses unknown lifetime {}", graph.op(instruction.op).name,
              use);
  } else {
    require(instruction.lifetime < plan.lifetimes.size(), "instruction {} moves unknown lifetime {}", id,
            instruction.lifetime);
    const Bucket& bucket = plan.buckets[plan.lifetimes[instruction.lifetime].bucket];
    require(bucket.on_host() && bucket.pinned(), "bucket '{}' is moved but has no page-locked host memory",
            bucket.name);
    require(instruction.part.begin <= instruction.part.end && instruction.part.end <= bucket.bytes,
            "instruction {} moves bytes that bucket '{}' has not", id, bucket.name);
  }
  for (const Wait& wait : instruction.waits)
    require(wait.steps_back == 0 ? wait.instruction < id
                                 : wait.steps_back == 1 && wait.instruction < plan.instructions.size(),
            "instruction {} waits for instruction {} of {} steps before, which is not enqueued by then", id,
            wait.instruction, wait.steps_back);
}

// What a speculated update needs to be taken back: a record of its own, and a host step that ends it.
void check_speculations(const Graph& graph, const Plan& plan) {
  std::vector<std::uint8_t> ended(graph.ops.size(), 0), speculated(graph.ops.size(), 0);
  for (const Instruction& instruction : plan.instructions)
    if (instruction.kind == InstructionKind::commit && runs_on_host(instruction)) ended[instruction.op] = 1;
  std::vector<ByteRange> records;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const Instruction& instruction = plan.instructions[id];
    if (instruction.kind != InstructionKind::speculate) continue;
    const std::string& name = graph.op(instruction.op).name;
    const ByteRange& record = instruction.part;
    const Bytes needed = undo_bytes(graph, graph.op(instruction.op));
    require(!plan.optimizer_in_backward, "'{}' is speculated with the optimizer in backward", name);
    require(id < plan.gate, "'{}' is speculated behind the gate", name);
    require(ended[instruction.op] != 0, "'{}' is speculated and never committed on the host", name);
    require(std::exchange(speculated[instruction.op], 1) == 0, "'{}' is speculated twice", name);
    require(
        needed > 0 && record.begin <= record.end && record.end <= plan.undo_bytes && record.bytes() == needed,
        "'{}' has an undo record of bytes {} to {} of {}, but needs {}", name, record.begin, record.end,
        plan.undo_bytes, needed);
    records.push_back(record);
  }
  std::sort(records.begin(), records.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < records.size(); ++i)
    require(records[i - 1].end <= records[i].begin, "undo records share byte {}", records[i].begin);
}

void check_gate(const Graph& graph, const Plan& plan) {
  require(plan.gate < plan.instructions.size(), "it has no gate");
  const Instruction& gate = plan.instructions[plan.gate];
  require(gate.kind == InstructionKind::gate, "its gate is of kind {}", to_string(gate.kind));
  const auto& writes = graph.op(gate.op).writes;
  require(std::find(writes.begin(), writes.end(), graph.clip) != writes.end(),
          "its gate is not the op that writes the gradient norm");
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
    const InstructionKind kind = plan.instructions[id].kind;
    const bool behind = id > plan.gate;
    require(kind != InstructionKind::gate || id == plan.gate, "instruction {} is a second gate", id);
    const bool in_backward = plan.optimizer_in_backward && runs_on_host(plan.instructions[id]);
    require(kind != InstructionKind::commit || behind || in_backward,
            "instruction {}, before the gate, is of kind commit", id);
    require(!behind || kind == InstructionKind::commit || kind == InstructionKind::prefetch,
            "instruction {}, behind the gate, is of kind {}", id, to_string(kind));
  }
}

void check_ring(const Plan& plan) {
  for (const Bucket& bucket : plan.buckets) {
    if (!bucket.in_ring()) continue;
    const BucketPlace& place = *bucket.place_in(MemoryId::host);
    const Bytes offset = *place.ring_offset;
    const Bytes bytes = bucket.ring_bytes();
    require(bucket.pinned() && bytes <= plan.ring_bytes && offset <= plan.ring_bytes - bytes,
            "bucket '{}' ends past the gradient ring of {} bytes", bucket.name, plan.ring_bytes);
    require(offset % most_tensor_alignment == 0,
            "bucket '{}' begins at byte {} of the gradient ring, which is no multiple of {}", bucket.name,
            offset, most_tensor_alignment);
    require(place.ring_span % most_tensor_alignment == 0,
            "bucket '{}' takes turns in {} bytes of the gradient ring, which is no multiple of {}",
            bucket.name, place.ring_span, most_tensor_alignment);
  }
}

void check_reports(const Graph& graph, const Plan& plan) {
  const auto bucket_with = [&plan](TensorId id) -> const Bucket& {
    return *std::find_if(plan.buckets.begin(), plan.buckets.end(), [id](const Bucket& bucket) {
      return std::any_of(bucket.tensors.begin(), bucket.tensors.end(),
                         [id](const BucketTensor& member) { return member.tensor == id; });
    });
  };
  require(graph.loss < graph.tensors.size() && bucket_with(graph.loss).on_host(),
          "the loss has no place on the host");
  require(graph.clip < graph.tensors.size() && bucket_with(graph.clip).on_host(),
          "the gradient norm has no place on the host");
  for (const Op& op : graph.ops)
    for (TensorId id : op.reads)
      require(graph.tensor(id).kind != TensorKind::input || bucket_with(id).on_host(),
              "input '{}' has no place on the host", graph.tensor(id).name);
}

}  // namespace

void check_executable(const Graph& graph, const Plan& plan) {
  if (plan.optimizer_in_backward) require_no_clipping(graph);
  check_buckets(graph, plan);
  check_lifetimes(plan);
  for (InstructionId id = 0; id < plan.instructions.size(); ++id) check_instruction(graph, plan, id);
  check_gate(graph, plan);
  check_speculations(graph, plan);
  check_ring(plan);
  check_reports(graph, plan);
}

}  // namespace stowage
