// What a transfer costs the other lanes of a machine whose lanes slow each other.
#pragma once

#include "stowage/machine.h"

namespace stowage {

// Whichever lanes work at one time: the time that passes on a lane and these shares of the others' times come
// to no more than the time that passes. All are 0 for a machine whose lanes do not slow each other.
struct LaneSharing {
  double of_in = 0;                  // of a prefetch's time, to the offloads' lane
  double of_out = 0;                 // of an offload's time, to the prefetches' lane
  double host_seconds_per_byte = 0;  // of any copy, to the host lane
};
LaneSharing sharing_of(const Machine& machine);

}  // namespace stowage
