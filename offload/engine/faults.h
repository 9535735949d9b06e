// Makes the errors that a failed step throws. They say what failed, for which op or bucket, and what became
// of the step.
#pragma once

#include <cstdint>
#include <exception>
#include <span>

#include "offload/engine/binding.h"
#include "offload/engine/non_finite.h"
#include "offload/engine/verify.h"
#include "stowage/engine.h"

namespace stowage {

struct Failure {
  const std::exception& cause;
  InstructionId current = 0;  // the instruction that the engine was enqueueing or completing
  std::uint64_t step = 0;     // 0-based index of the step that failed
  bool counted = false;       // the step passed its gate, and its update has been completed
  bool lost = false;          // the update could not be completed
  bool partly = false;        // updates were made for good before the gate that the step never passed
};

// The error names the work that the device reports as failed, else the instruction that the engine was
// enqueueing or completing.
StepError make_step_error(const Plan& plan, std::span<const BoundInstruction> bound, const Failure& failure);

// `tracker` has followed the plan up to the replay.
RecomputeMismatch make_mismatch(const Graph& graph, const Plan& plan, std::span<const BoundInstruction> bound,
                                const RecomputeTracker& tracker, const ReplayDifference& difference,
                                const Failure& failure);

NonFinite make_non_finite(const Graph& graph, const Plan& plan, std::span<const BoundInstruction> bound,
                          const NonFiniteValue& value, const Failure& failure);

}  // namespace stowage
