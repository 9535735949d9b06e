#include "offload/engine/non_finite.h"

namespace stowage {
namespace {

bool is_op(const Instruction& instruction) { return instruction.lifetime == no_id; }

Bytes largest_operand(const Plan& plan, std::span<const BoundInstruction> bound) {
  Bytes most = 0;
  for (InstructionId id = 0; id <= plan.gate; ++id)
    for (const auto* operands : {&bound[id].reads, &bound[id].writes})
      for (const Operand& operand : *operands) most = std::max(most, operand.tensor->bytes());
  return most;
}

// True for values that no op of the step makes before its gate.
bool is_given(TensorKind kind) {
  return kind == TensorKind::parameter || kind == TensorKind::optimizer_state || kind == TensorKind::input;
}

}  // namespace

NonFiniteSearch::NonFiniteSearch(Device& device, const Graph& graph, const Plan& plan, const Lanes& lanes,
                                 std::span<const BoundInstruction> bound, bool pageable_fallback)
    : device_(device),
      graph_(graph),
      plan_(plan),
      lanes_(lanes),
      bound_(bound),
      reader_(device, lanes, largest_operand(plan, bound), pageable_fallback) {}

void NonFiniteSearch::follow(InstructionId id) {
  const Instruction& instruction = plan_.instructions[id];
  if (!is_op(instruction) || instruction.kind == InstructionKind::speculate) return;
  if (bound_[id].is_collective) return look_at_share(id);
  device_.synchronise_lane(lanes_[instruction.lane]);
  for (std::size_t write = 0; write < bound_[id].writes.size(); ++write) {
    const Operand& written = bound_[id].writes[write];
    if (written.tensor->kind == TensorKind::workspace) continue;
    if (const auto element = look(instruction, written)) blame(id, write, *element);
  }
}

// A collective's input was looked at when an op made it; only parameters remain to be looked at. The
// collective's result is not looked at, because the ends of rows may be undefined.
void NonFiniteSearch::look_at_share(InstructionId id) {
  const Operand& share = bound_[id].reads[0];
  if (!is_given(share.tensor->kind)) return;
  device_.synchronise_lane(lanes_[plan_.instructions[id].lane]);
  const auto element = look(plan_.instructions[id], share);
  if (!element) return;
  NonFiniteValue value;
  value.instruction = id;
  value.tensor = bound_[id].work[0].op->reads[0];
  value.was_read = true;
  value.element = *element;
  throw value;
}

std::optional<NonFiniteElement> NonFiniteSearch::look(const Instruction& instruction, const Operand& value) {
  const Tensor& tensor = *value.tensor;
  if (runs_on_host(instruction))
    return first_non_finite(tensor.type, {static_cast<const std::byte*>(value.data), tensor.bytes()});
  std::optional<NonFiniteElement> found;
  std::uint64_t before = 0;
  reader_.read(value, "look for NaN", [&](std::span<const std::byte> part) {
    found = first_non_finite(tensor.type, part);
    if (found) found->index += before;
    before += part.size() / size_of(tensor.type);
    return !found;
  });
  return found;
}

void NonFiniteSearch::blame(InstructionId id, std::size_t write, const NonFiniteElement& element) {
  const Instruction& instruction = plan_.instructions[id];
  const Op& op = graph_.op(instruction.op);
  NonFiniteValue value;
  value.instruction = id;
  value.tensor = op.writes[write];
  value.element = element;
  for (std::size_t i = 0; i < op.reads.size(); ++i) {
    const Operand& read = bound_[id].reads[i];
    if (!is_given(read.tensor->kind)) continue;
    const auto there = look(instruction, read);
    if (!there) continue;
    value.tensor = op.reads[i];
    value.was_read = true;
    value.element = *there;
    break;
  }
  throw value;
}

}  // namespace stowage
