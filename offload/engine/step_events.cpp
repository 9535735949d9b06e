#include "offload/engine/step_events.h"

namespace stowage {
namespace {

std::vector<bool> instructions_with_end(const Plan& plan, std::initializer_list<InstructionId> needed,
                                        bool all) {
  std::vector<bool> result(plan.instructions.size(), all);
  for (InstructionId id : needed) result[id] = true;
  for (const Instruction& instruction : plan.instructions)
    for (const Wait& wait : instruction.waits) result[wait.instruction] = true;
  return result;
}

}  // namespace

StepEvents::StepEvents(Device& device, const Plan& plan, std::initializer_list<InstructionId> needed,
                       bool measure)
    : measured_(measure), has_end_(instructions_with_end(plan, needed, measure)) {
  for (Parity parity = 0; parity < 2; ++parity) {
    for (InstructionId id = 0; id < plan.instructions.size(); ++id) {
      begins_[parity].push_back(measure ? Event(device) : Event());
      ends_[parity].push_back(has_end_[id] ? Event(device) : Event());
    }
  }
}

}  // namespace stowage
