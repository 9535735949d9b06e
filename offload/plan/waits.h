// Leaves out the waits that lane order, other waits and the gate imply.
#pragma once

#include <vector>

#include "stowage/plan.h"

namespace stowage {

// What an instruction must come after.
struct WantedWait {
  InstructionId waiter = no_id;
  Wait on;
};

// `wanted`: everything that instructions must come after, in any order, the same perhaps several times. Sets
// `waits` of each instruction to a subset that implies all of it and of which no member is implied by the
// rest.
void reduce_waits(Plan& plan, const std::vector<WantedWait>& wanted);

}  // namespace stowage
