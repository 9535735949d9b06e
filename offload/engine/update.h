// Update completes or takes back a step's changes of weights after a failure. From the gate on a step counts,
// so every host step and every device update must take effect exactly once. Before the gate, speculated
// updates must take no effect; an update for good before the gate can be neither completed nor taken back.
#pragma once

#include "offload/engine/lanes.h"
#include "offload/engine/staging.h"
#include "offload/engine/step_runner.h"

namespace stowage {

class Update {
 public:
  // All arguments must outlive the object.
  Update(Device& device, const Plan& plan, Lanes& lanes, StepRunner& runner,
         std::vector<BoundInstruction>& bound, bool pageable_fallback)
      : device_(device),
        plan_(plan),
        lanes_(lanes),
        staging_(device, lanes, {}, pageable_fallback),
        runner_(runner),
        bound_(bound) {}

  // Completes the update of the step that used `parity`: runs host steps in the calling thread, and enqueues
  // device work again, one instruction at a time. Leaves alone the work that was done. Requires that the
  // lanes are settled. Returns false if the device fails again, so that values that live there are lost.
  bool complete(Parity parity) noexcept;
  // Returns whether the step that uses `parity` has begun an update before its gate that cannot be taken back
  // (Plan::optimizer_in_backward). Requires that the lanes are settled.
  bool made_for_good(Parity parity) const;
  // Takes back, in the calling thread, the updates that the step that uses `parity` has speculated and not
  // committed. Requires that the lanes are settled. A second call does nothing.
  void undo(Parity parity);

 private:
  void complete_once(Parity parity);
  void complete_one(InstructionId id, Parity parity);
  void reclaim_operands(const BoundInstruction& launch);
  bool wanted_again(InstructionId prefetch, Parity parity) const;

  Device& device_;
  const Plan& plan_;
  Lanes& lanes_;
  // This staging has no spare range: a value read from the device must be written back from other memory, or
  // bytes that the device counts as undefined stay undefined.
  Staging staging_;
  StepRunner& runner_;
  std::vector<BoundInstruction>& bound_;
};

}  // namespace stowage
