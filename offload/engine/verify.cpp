#include "offload/engine/verify.h"

#include <algorithm>

#include "offload/recompute/bits_hash.h"

namespace stowage {
namespace {

constexpr Bytes most_staged_bytes = 4_MiB;  // a multiple of 8, as BitsHash wants its parts

// Of the largest tensor that is compared; 0 if the plan replays nothing.
Bytes staged_bytes(const Graph& graph, const Plan& plan, const RecomputeTracker& tracker) {
  Bytes most = 0;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id)
    for (std::uint32_t write : tracker.compared_writes(id))
      most = std::max(most, graph.tensor(graph.op(plan.instructions[id].op).writes[write]).bytes());
  return std::min(most, most_staged_bytes);
}

DeviceMemory staging_of(Device& device, Bytes bytes) {
  return bytes == 0 ? DeviceMemory() : DeviceMemory(device, MemoryKind::pinned, bytes);
}

}  // namespace

ReplayVerifier::ReplayVerifier(Device& device, const Graph& graph, const Plan& plan, const Lanes& lanes,
                               std::span<const BoundInstruction> bound)
    : device_(device),
      graph_(graph),
      plan_(plan),
      lanes_(lanes),
      bound_(bound),
      tracker_(graph, plan),
      staging_(staging_of(device, staged_bytes(graph, plan, tracker_))) {}

void ReplayVerifier::begin_step() {
  tracker_.begin_step();
  replays_ = 0;
  copied_bytes_ = 0;
}

void ReplayVerifier::follow(InstructionId id) {
  tracker_.follow(id);
  const std::span<const std::uint32_t> writes = tracker_.compared_writes(id);
  if (writes.empty()) return;
  const Instruction& instruction = plan_.instructions[id];
  device_.synchronise_lane(lanes_[instruction.lane]);
  for (std::uint32_t write : writes) {
    const std::uint64_t found = hash(bound_[id].writes[write]);
    const auto [equal, expected] = tracker_.compare(id, write, found);
    if (equal) continue;
    ReplayDifference difference;
    difference.instruction = id;
    difference.tensor = graph_.op(instruction.op).writes[write];
    difference.expected = expected;
    difference.found = found;
    throw difference;
  }
  if (instruction.kind == InstructionKind::recompute) ++replays_;
}

std::uint64_t ReplayVerifier::hash(const Operand& value) {
  const auto* data = static_cast<const std::byte*>(value.data);
  const Bytes bytes = value.tensor->bytes();
  const LaneId lane = lanes_[LaneRole::d2h];
  BitsHash hash;
  for (Bytes done = 0; done < bytes; done += staging_.bytes()) {
    const Bytes part = std::min(staging_.bytes(), bytes - done);
    device_.copy(lane, staging_.data(), data + done, part, "verify");
    device_.synchronise_lane(lane);
    copied_bytes_ += part;
    hash.add({staging_.data(), part});
  }
  return hash.value();
}

}  // namespace stowage
