// Waits between lanes that compute on the device, and the waits that may be left out because lane order,
// other waits and the gate imply them.
#pragma once

#include <vector>

#include "offload/plan/problem/buckets.h"
#include "offload/plan/schedule/lifetimes.h"
#include "stowage/plan.h"

namespace stowage {

// A wait that `waiter` must keep: it comes after `on`.
struct WantedWait {
  InstructionId waiter = no_id;
  Wait on;
};

// Sets the `waits` of each instruction to a subset of `wanted` that implies all of `wanted`. No wait of the
// subset is implied by the rest. `wanted` may have any order, and the same wait several times.
void reduce_waits(Plan& plan, const std::vector<WantedWait>& wanted);

// Adds to `wanted` the waits between the compute lane and the peer lane. An instruction that reads a lifetime
// waits for the last instruction of each lane that wrote it. An instruction that writes a lifetime waits for
// the last ones that read or wrote it. For a resident, both kinds of instruction also wait for the last ones
// of the step before. Requires that `plan` has its instructions in order.
void want_lane_waits(const BucketLayout& layout, const Draft& draft, const Plan& plan,
                     std::vector<WantedWait>& wanted);

}  // namespace stowage
