// What a transfer costs the other lanes of a machine whose lanes slow each other.
#pragma once

#include "offload/plan/share_program.h"
#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage {

// For each lane, whichever lanes work with it: the lane's progress (in seconds of its work alone) plus these
// shares of the other lanes' progress is at most the time that passes. So work on one lane can be charged to
// another, and a bound that adds the charges stays a bound. All are 0 where lanes do not slow each other.
struct LaneSharing {
  double of_in = 0;                  // of a prefetch's time, to the offloads' lane
  double of_out = 0;                 // of an offload's time, to the prefetches' lane
  double host_seconds_per_byte = 0;  // of any copy, to the host lane
  // Of the time in which bytes come from peers, to the lanes of prefetches, of offloads and of the host.
  double peer_to_h2d = 0;
  double peer_to_d2h = 0;
  double peer_to_host = 0;
};
LaneSharing sharing_of(const Machine& machine);

// What an op of the peer lane costs the other lanes by what it brings.
void add_peer_sharing(const LaneSharing& sharing, const Op& op, const Machine& machine, ShareTimes& lanes);

}  // namespace stowage
