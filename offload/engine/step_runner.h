// Enqueues instructions of a plan on their lanes.
#pragma once

#include <span>

#include "offload/engine/binding.h"
#include "offload/engine/lanes.h"
#include "offload/engine/step_events.h"
#include "stowage/communicator.h"

namespace stowage {

// Looks at a step while it is enqueued, instruction by instruction.
class Follower {
 public:
  virtual ~Follower() = default;
  // Called when the instruction's work has just been enqueued: everything that it waits for is enqueued, and
  // nothing behind it. An exception from here ends the step; copies may then be in flight, and the lanes must
  // settle before the follower is destroyed.
  virtual void follow(InstructionId id) = 0;
};

class StepRunner {
 public:
  // All arguments must outlive the runner.
  StepRunner(Device& device, Communicator* communicator, const Plan& plan, const Lanes& lanes,
             const StepEvents& events, std::vector<BoundInstruction>& bound)
      : device_(device),
        communicator_(communicator),
        plan_(plan),
        lanes_(lanes),
        events_(events),
        bound_(bound) {}

  // Sets the follower of all instructions from here on; null: none.
  void set_follower(Follower* follower) { follower_ = follower; }

  // Marks all work of the set as not done. Requires that the step that used the set before has finished.
  void forget(Parity parity);
  // Enqueues [first, last) in order, so that every wait is for work that has been enqueued; the members of a
  // joint launch at the place of the first. It may block while a lane is full, but lanes empty by themselves.
  // `step_before`: also enqueues the waits for the step before; else nothing of that step may be in flight.
  // Passes on exceptions of the follower.
  void enqueue(InstructionId first, InstructionId last, Parity parity, bool step_before);
  // Enqueues only the instruction's own transfer or launch, without waits and events.
  void enqueue_work(InstructionId id, Parity parity);

  // The instruction that the engine is working on, for error messages.
  InstructionId current() const { return current_; }
  void set_current(InstructionId id) { current_ = id; }
  double received_bytes() const { return received_bytes_; }  // bytes that all collectives received so far

 private:
  void enqueue_one(InstructionId id, Parity parity, bool step_before);
  void enqueue_collective(LaneId lane, const BoundInstruction& bound);

  Device& device_;
  Communicator* communicator_;  // null for a graph without collectives
  const Plan& plan_;
  const Lanes& lanes_;
  const StepEvents& events_;
  std::vector<BoundInstruction>& bound_;
  Follower* follower_ = nullptr;
  InstructionId current_ = 0;
  double received_bytes_ = 0;
};

}  // namespace stowage
