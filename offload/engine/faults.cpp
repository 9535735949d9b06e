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

}  // namespace stowage
