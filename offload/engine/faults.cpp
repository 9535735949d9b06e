#include "offload/engine/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace stowage {
namespace {

constexpr const char* partly_made =
    "the step was made in part, and what was applied before its end cannot be taken back: weights and "
    "optimizer state are lost; make a new engine and restore the last checkpoint";

InstructionId failed_instruction(std::span<const BoundInstruction> bound, const Failure& failure,
                                 const DeviceError* device) {
  if (device == nullptr || device->work().empty()) return failure.current;
  const auto found = std::find_if(bound.begin(), bound.end(),
                                  [device](const BoundInstruction& b) { return b.name == device->work(); });
  return found == bound.end() ? failure.current : static_cast<InstructionId>(found - bound.begin());
}

std::string outcome(const Failure& failure) {
  if (failure.partly) return partly_made;
  if (failure.lost)
    return "its update could not be completed and values on the device are lost: make a new engine and "
           "restore "
           "a checkpoint";
  if (failure.counted) return "the update has been completed and the step counts: go on with the next one";
  return fmt::format("the step was not made, weights are as of {} completed steps: call step again",
                     failure.step);
}

// Says how each activation that the op reads came to be on the device.
std::string describe_reads(const Graph& graph, const Op& op, const RecomputeTracker& tracker) {
  std::string text;
  for (TensorId id : op.reads) {
    if (graph.tensor(id).kind != TensorKind::activation) continue;
    text += fmt::format("{}'{}' ({})", text.empty() ? "" : ", ", graph.tensor(id).name,
                        to_string(tracker.state(id)));
  }
  return text.empty() ? "no activations" : text;
}

// Leaves out the sign that some machines give to NaN.
std::string told(double value) { return std::isnan(value) ? "NaN" : fmt::format("{}", value); }

NonFinite::Origin origin_of(const Graph& graph, const Plan& plan, const NonFiniteValue& value) {
  if (value.instruction == no_id)
    return value.was_searched ? NonFinite::Origin::unknown : NonFinite::Origin::not_searched;
  if (value.was_read) return NonFinite::Origin::given;
  const std::string& kernel = graph.op(plan.instructions[value.instruction].op).kernel;
  const bool is_norm =
      kernel == "square_sum" || kernel == "square_sums" || kernel == "norm_part" || kernel == "clip";
  return is_norm ? NonFinite::Origin::norm : NonFinite::Origin::op;
}

// Says which value was found, but not what became of the step.
std::string describe(const Graph& graph, const Plan& plan, const NonFiniteValue& value,
                     NonFinite::Origin origin) {
  if (origin == NonFinite::Origin::unknown)
    return "but with all results looked at the same step is finite: a kernel is not replayable on this "
           "device, "
           "or its memory fails";
  if (origin == NonFinite::Origin::not_searched)
    return "the optimizer runs in backward, so the step was made in part, and what made it so is not looked "
           "for";
  const Op& op = graph.op(plan.instructions[value.instruction].op);
  const Tensor& tensor = graph.tensor(value.tensor);
  const std::string where =
      fmt::format("{} at element {}", value.element.is_nan ? "NaN" : "an infinity", value.element.index);
  if (origin == NonFinite::Origin::given)
    return fmt::format("{} '{}', which op '{}' (kernel '{}') is the first to read, holds {}",
                       to_string(tensor.kind), tensor.name, op.name, op.kernel, where);
  if (origin == NonFinite::Origin::norm)
    return fmt::format(
        "only the norm overflows: all that op '{}' (kernel '{}') sums is finite, and '{}' is not", op.name,
        op.kernel, tensor.name);
  return fmt::format(
      "'{}' is the first result that is not finite, and holds {}: op '{}' (kernel '{}') made it "
      "of finite values",
      tensor.name, where, op.name, op.kernel);
}

// A step that is made again from the same state with the same inputs ends in the same bits.
std::string outcome_of_non_finite(const Failure& failure, NonFinite::Origin origin) {
  if (failure.lost || failure.partly) return outcome(failure);
  const char* next = "go on with other inputs, or from an earlier state with a lower learning rate";
  if (origin == NonFinite::Origin::given) next = "go on from an earlier state";
  if (origin == NonFinite::Origin::unknown) next = "call step again";
  return fmt::format("the step was not made, weights are as of {} completed steps: {}", failure.step, next);
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

NonFinite make_non_finite(const Graph& graph, const Plan& plan, std::span<const BoundInstruction> bound,
                          const NonFiniteValue& value, const Failure& failure) {
  const NonFinite::Origin origin = origin_of(graph, plan, value);
  const InstructionId id = value.instruction == no_id ? plan.gate : value.instruction;
  const Op& op = graph.op(plan.instructions[id].op);
  NonFinite::Finding finding;
  finding.origin = origin;
  finding.step = failure.step;
  finding.loss = value.loss;
  finding.grad_norm = value.grad_norm;
  finding.kernel = op.kernel;
  finding.tensor = value.tensor == no_id ? "" : graph.tensor(value.tensor).name;
  finding.text = fmt::format("loss {}, gradient norm {}: {}", told(value.loss), told(value.grad_norm),
                             describe(graph, plan, value, origin));
  const std::string message =
      fmt::format("step {}: {}; {}", failure.step, finding.text, outcome_of_non_finite(failure, origin));
  return {{message, "", op.name, bound[id].bytes, plan.instructions[id].lane, failure.counted},
          std::move(finding)};
}

}  // namespace stowage
