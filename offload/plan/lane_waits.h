// Waits between the lanes that compute on the device, where ops of both touch the same bytes.
#pragma once

#include <vector>

#include "offload/plan/buckets.h"
#include "offload/plan/lifetimes.h"
#include "offload/plan/waits.h"

namespace stowage {

// Adds to `wanted` what the instructions of `plan` wait for on the other lane: who reads bytes of a lifetime
// waits for the last who wrote some, and who writes for the last who read or wrote; of what stays across
// steps, for those of the step before, too. The plan has its instructions, in order.
void want_lane_waits(const BucketLayout& layout, const Draft& draft, const Plan& plan,
                     std::vector<WantedWait>& wanted);

}  // namespace stowage
