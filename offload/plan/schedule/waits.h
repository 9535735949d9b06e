// Waits between lanes that compute on the device, and the waits that may be left out because lane order,
// other waits and the gate imply them.
#pragma once

#include <vector>

#include "offload/plan/problem/buckets.h"
#include "offload/plan/schedule/lifetimes.h"
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

// Adds to `wanted` what the instructions of `plan` wait for on the other lane: who reads bytes of a lifetime
// waits for the last who wrote some, and who writes for the last who read or wrote; of what stays across
// steps, for those of the step before, too. The plan has its instructions, in order.
void want_lane_waits(const BucketLayout& layout, const Draft& draft, const Plan& plan,
                     std::vector<WantedWait>& wanted);

}  // namespace stowage
