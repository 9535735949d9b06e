// What looks at a step while it is enqueued, instruction by instruction.
#pragma once

#include "stowage/plan.h"

namespace stowage {

class Follower {
 public:
  virtual ~Follower() = default;
  // The instruction's work has just been enqueued; all that it waits for has too, and nothing behind it. What
  // this throws ends the step; copies may then be in flight, and the lanes must settle before the follower
  // goes.
  virtual void follow(InstructionId id) = 0;
};

}  // namespace stowage
