#include "offload/engine/verify.h"

#include <algorithm>

#include "offload/recompute/bits_hash.h"

namespace stowage {
namespace {

// Returns the bytes of the largest tensor that is compared; 0 if the plan replays nothing.
Bytes largest_compared(const Graph& graph, const Plan& plan, const RecomputeTracker& tracker) {
  Bytes most = 0;
  for (InstructionId id = 0; id < plan.instructions.size(); ++id)
    for (std::uint32_t write : tracker.compared_writes(id))
      most = std::max(most, graph.tensor(graph.op(plan.instructions[id].op).writes[write]).bytes());
  return most;
}

}  // namespace

ReplayVerifier::ReplayVerifier(Device& device, const Graph& graph, const Plan& plan, const Lanes& lanes,
                               std::span<const BoundInstruction> bound, bool pageable_fallback)
    : device_(device),
      graph_(graph),
      plan_(plan),
      lanes_(lanes),
      bound_(bound),
      tracker_(graph, plan),
      reader_(device, lanes, largest_compared(graph, plan, tracker_), pageable_fallback) {}

void ReplayVerifier::begin_step() {
  tracker_.begin_step();
  replays_ = 0;
  reader_.forget();
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
  BitsHash hash;
  reader_.read(value, "verify", [&hash](std::span<const std::byte> part) {
    hash.add(part);
    return true;
  });
  return hash.value();
}

}  // namespace stowage
