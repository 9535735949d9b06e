#include "offload/engine/faults.h"

#include <fmt/format.h>

#include <algorithm>

namespace stowage {
namespace {

InstructionId failed_instruction(std::span<const BoundInstruction> bound, const Failure& failure,
                                 const DeviceError* device) {
  if (device == nullptr || device->work().empty()) return failure.current;
  const auto found = std::find_if(bound.begin(), bound.end(),
                                  [device](const BoundInstruction& b) { return b.name == device->work(); });
  return found == bound.end() ? failure.current : static_cast<InstructionId>(found - bound.begin());
}

std::string outcome(const Failure& failure) {
  if (failure.lost)
    return "its update could not be completed and values on the device are lost: make a new engine and "
           "restore "
           "a checkpoint";
  if (failure.counted) return "the update has been completed and the step counts: go on with the next one";
  return fmt::format("the step was not made, weights are as of {} completed steps: call step again",
                     failure.step);
}

// How each activation that the op reads came to be on the device.
std::string describe_reads(const Graph& graph, const Op& op, const RecomputeTracker& tracker) {
  std::string text;
  for (TensorId id : op.reads) {
    if (graph.tensor(id).kind != TensorKind::activation) continue;
    text += fmt::format("{}'{}' ({})", text.empty() ? "" : ", ", graph.tensor(id).name,
                        to_string(tracker.state(id)));
  }
  return text.empty() ? "no activations" : text;
}

}  // namespace

StepError make_step_error(const Plan& plan, std::span<const BoundInstruction> bound, const Failure& failure) {
  const auto* device = dynamic_cast<const DeviceError*>(&failure.cause);
  const std::string call = device == nullptr ? "" : device->call();
  const InstructionId id = failed_instruction(bound, failure, device);
  const Instruction& instruction = plan.instructions[id];
  const std::string message = fmt::format(
      "step {}: {} of '{}' ({}, {} lane) failed{}: {}; {}", failure.step, to_string(instruction.kind),
      bound[id].label, format_bytes(bound[id].bytes), to_string(instruction.lane),
      call.empty() ? "" : " in " + call, failure.cause.what(), outcome(failure));
  return {message, call, bound[id].label, bound[id].bytes, instruction.lane, failure.counted};
}

RecomputeMismatch make_mismatch(const Graph& graph, const Plan& plan, std::span<const BoundInstruction> bound,
                                const RecomputeTracker& tracker, const ReplayDifference& difference,
                                const Failure& failure) {
  const Instruction& instruction = plan.instructions[difference.instruction];
  const Op& op = graph.op(instruction.op);
  const Tensor& tensor = graph.tensor(difference.tensor);
  const BoundInstruction& replay = bound[difference.instruction];
  const std::string message = fmt::format(
      "step {}: the replay of '{}' (kernel '{}') wrote other bits into '{}' ({}) than its first launch did "
      "(hash {:016x}, was {:016x}): the kernel is not replayable on this device, or what it reads has "
      "changed; it "
      "reads {}; {}",
      failure.step, op.name, op.kernel, tensor.name, format_bytes(tensor.bytes()), difference.found,
      difference.expected, describe_reads(graph, op, tracker), outcome(failure));
  return {{message, "", replay.label, replay.bytes, instruction.lane, failure.counted},
          op.kernel,
          tensor.name,
          failure.step};
}

}  // namespace stowage
