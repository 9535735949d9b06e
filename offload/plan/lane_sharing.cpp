#include "offload/plan/lane_sharing.h"

#include <algorithm>

#include "offload/plan/lane_speeds.h"
#include "src/graph/cost.h"

namespace stowage {
namespace {

double share(LaneMask working, LaneRole lane, const LaneSpeeds& speeds) {
  return (working & mask_of(lane)) != 0 ? speeds.of(working, lane) : 0;
}

// Behind the shares of copies.
void add_peers(const Machine& machine, const LaneSpeeds& speeds, LaneSharing& sharing) {
  sharing.peer_to_h2d = sharing.peer_to_d2h = sharing.peer_to_host = as_alone;
  for (LaneMask working = 0; working < LaneMask{1} << lane_roles; ++working) {
    const double peer = share(working, LaneRole::peer, speeds);
    if (peer <= 0) continue;
    const double in = share(working, LaneRole::h2d, speeds), out = share(working, LaneRole::d2h, speeds);
    const double copied = in * machine.h2d.bytes_per_second + out * machine.d2h.bytes_per_second;
    const double host = share(working, LaneRole::host, speeds) + copied * sharing.host_seconds_per_byte;
    const auto at_most = [peer](double& of, double others) { of = std::min(of, (1 - others) / peer); };
    at_most(sharing.peer_to_h2d, in + out * sharing.of_out);
    at_most(sharing.peer_to_d2h, out + in * sharing.of_in);
    at_most(sharing.peer_to_host, host);
  }
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
  if (machine.peer_path != PeerPath::apart) add_peers(machine, speeds, sharing);
  return sharing;
}

void add_peer_sharing(const LaneSharing& sharing, const Op& op, const Machine& machine, ShareTimes& lanes) {
  const double seconds = peer_seconds(op, machine);
  lanes[share_h2d] += seconds * sharing.peer_to_h2d;
  lanes[share_d2h] += seconds * sharing.peer_to_d2h;
  lanes[share_host] += seconds * sharing.peer_to_host;
}

}  // namespace stowage
