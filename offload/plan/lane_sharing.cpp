#include "offload/plan/lane_sharing.h"

#include <algorithm>

#include "offload/plan/lane_speeds.h"

namespace stowage {
namespace {

double share(LaneMask working, LaneRole lane, const LaneSpeeds& speeds) {
  return (working & mask_of(lane)) != 0 ? speeds.of(working, lane) : 0;
}

}  // namespace

LaneSharing sharing_of(const Machine& machine) {
  const LaneSpeeds speeds(machine);
  if (!speeds.shared()) return {};
  LaneSharing sharing{1, 1, as_alone};
  for (LaneMask working = 0; working < LaneMask{1} << lane_roles; ++working) {
    const double in = share(working, LaneRole::h2d, speeds), out = share(working, LaneRole::d2h, speeds);
    const double copied = in * machine.h2d.bytes_per_second + out * machine.d2h.bytes_per_second;
    if (copied <= 0) continue;
    sharing.host_seconds_per_byte =
        std::min(sharing.host_seconds_per_byte, (1 - share(working, LaneRole::host, speeds)) / copied);
    if (in > 0) sharing.of_in = std::min(sharing.of_in, (1 - out) / in);
    if (out > 0) sharing.of_out = std::min(sharing.of_out, (1 - in) / out);
  }
  return sharing;
}

}  // namespace stowage
