// Update: what changes weights, and how it is completed or taken back after a failure. From the gate on a
// step counts, so every host step and every device update must take effect exactly once. Before it, what has
// been speculated must take none; an update for good before the gate can be neither completed nor taken back.
#pragma once

#include "offload/engine/lanes.h"
#include "offload/engine/staging.h"
#include "offload/engine/step_runner.h"

namespace stowage {

class Update {
 public:
  // Everything must outlive it.
  Update(Device& device, const Plan& plan, Lanes& lanes, StepRunner& runner,
         std::vector<BoundInstruction>& bound, bool pageable_fallback)
      : device_(device),
        plan_(plan),
        lanes_(lanes),
        staging_(device, lanes, {}, pageable_fallback),
        runner_(runner),
        bound_(bound) {}

  // Brings the update of the step that used `parity` to its end: host steps in the calling thread,
  // device work enqueued again, one at a time; what has been done is left alone. Lanes must be
  // settled. False when the device fails again, so that values that live there are lost.
  bool complete(Parity parity) noexcept;
  // Whether the step that uses `parity` has begun an update before its gate that cannot be taken back
  // (Plan::optimizer_in_backward). Lanes must be settled.
  bool made_for_good(Parity parity) const;
  // Takes back what the step that uses `parity` has speculated and not committed, in the calling thread.
  // Lanes must be settled. Nothing is left to do for it twice.
  void undo(Parity parity);

 private:
  void complete_once(Parity parity);
  void complete_one(InstructionId id, Parity parity);
  void reclaim_operands(const BoundInstruction& launch);
  bool wanted_again(InstructionId prefetch, Parity parity) const;

  Device& device_;
  const Plan& plan_;
  Lanes& lanes_;
  // Without a spare range: what comes back from the device must go there from other memory, or what is
  // undefined on its account stays so.
  Staging staging_;
  StepRunner& runner_;
  std::vector<BoundInstruction>& bound_;
};

}  // namespace stowage
