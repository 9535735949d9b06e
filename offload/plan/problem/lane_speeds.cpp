#include "offload/plan/problem/lane_speeds.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace stowage {
namespace {

// What lanes share: each direction of the link, and host memory.
enum Resource : std::size_t { way_in, way_out, host_memory, resources };
using Rates = std::array<double, lane_roles>;  // bytes per second, by lane

// One lane that moves bytes: as fast as `wanted` if all is its own.
struct Flow {
  LaneRole lane{};
  double wanted = 0;
  std::array<int, resources> takes{};  // bytes of each resource for one that it moves
};

// Max-min fairness by filling: all flows are raised evenly, until one has what it wants or a resource of its
// is used up.
Rates fair_rates(std::vector<Flow> open, std::array<double, resources> room) {
  Rates rates{};
  while (!open.empty()) {
    std::sort(open.begin(), open.end(), [](const Flow& a, const Flow& b) { return a.wanted < b.wanted; });
    double level = open.front().wanted;
    std::size_t least = resources;
    for (std::size_t r = 0; r < resources; ++r) {
      int takers = 0;
      for (const Flow& flow : open) takers += flow.takes.at(r);
      if (takers > 0 && level > room.at(r) / takers) {
        level = room.at(r) / takers;
        least = r;
      }
    }
    const auto ends = [least, slowest = open.front().lane](const Flow& flow) {
      return least == resources ? flow.lane == slowest : flow.takes.at(least) > 0;
    };
    const auto first = std::stable_partition(open.begin(), open.end(), ends);
    for (auto flow = open.begin(); flow != first; ++flow) {
      rates.at(index_of(flow->lane)) = level;
      for (std::size_t r = 0; r < resources; ++r) room.at(r) -= flow->takes.at(r) * level;
    }
    open.erase(open.begin(), first);
  }
  return rates;
}

double alone(const Machine& machine, LaneRole lane) {
  switch (lane) {
    case LaneRole::h2d:
      return machine.h2d.bytes_per_second;
    case LaneRole::d2h:
      return machine.d2h.bytes_per_second;
    case LaneRole::peer:
      return machine.peer.bytes_per_second;
    default:
      return machine.host_bytes_per_second;
  }
}

std::vector<Flow> flows_of(const Machine& machine, LaneMask working) {
  const auto works = [&](LaneRole lane) { return (working & mask_of(lane)) != 0; };
  std::vector<Flow> flows;
  if (works(LaneRole::h2d)) flows.push_back({LaneRole::h2d, alone(machine, LaneRole::h2d), {1, 0, 1}});
  if (works(LaneRole::d2h)) flows.push_back({LaneRole::d2h, alone(machine, LaneRole::d2h), {0, 1, 1}});
  if (works(LaneRole::host)) {
    const double beside = works(LaneRole::compute) ? machine.host_beside_compute : 1;
    flows.push_back({LaneRole::host, alone(machine, LaneRole::host) * beside, {0, 0, 1}});
  }
  const bool takes_time = std::isfinite(machine.peer.bytes_per_second);
  if (works(LaneRole::peer) && takes_time && machine.peer_path != PeerPath::apart)
    flows.push_back({LaneRole::peer,
                     alone(machine, LaneRole::peer),
                     {1, 1, machine.peer_path == PeerPath::host_memory ? 2 : 0}});
  return flows;
}

// Of each resource, in bytes per second.
std::array<double, resources> room_of(const Machine& machine, const std::vector<Flow>& flows) {
  const auto moves = [&](Resource way) {
    return std::any_of(flows.begin(), flows.end(), [&](const Flow& flow) { return flow.takes.at(way) > 0; });
  };
  double in = machine.h2d.bytes_per_second, out = machine.d2h.bytes_per_second;
  if (moves(way_in) && moves(way_out)) {
    in = std::min(in, machine.h2d_both_bytes_per_second);
    out = std::min(out, machine.d2h_both_bytes_per_second);
  }
  return {in, out, machine.host_total_bytes_per_second};
}

double compute_speed(const Machine& machine, LaneMask working) {
  double speed = 1;
  for (const LaneRole link : {LaneRole::h2d, LaneRole::d2h})
    if ((working & mask_of(link)) != 0) speed *= machine.compute_beside_copy;
  return (working & mask_of(LaneRole::host)) != 0 ? speed * machine.compute_beside_host : speed;
}

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

Machine without_contention(Machine machine) {
  machine.h2d_both_bytes_per_second = machine.d2h_both_bytes_per_second = as_alone;
  machine.host_total_bytes_per_second = as_alone;
  machine.peer_path = PeerPath::apart;
  machine.compute_beside_copy = machine.compute_beside_host = machine.host_beside_compute = 1;
  return machine;
}

Machine with_link_contention(Machine machine) {
  const LaneSpeeds speeds(machine);
  const LaneMask both = mask_of(LaneRole::h2d) | mask_of(LaneRole::d2h);
  machine.h2d.bytes_per_second *= speeds.of(both, LaneRole::h2d);
  machine.d2h.bytes_per_second *= speeds.of(both, LaneRole::d2h);
  return machine;
}

LaneSpeeds::LaneSpeeds(const Machine& machine) {
  bool usable = true;
  for (LaneMask working = 0; working < speeds_.size(); ++working) {
    auto& speeds = speeds_.at(working);
    speeds.fill(1);
    speeds[index_of(LaneRole::compute)] = compute_speed(machine, working);
    const std::vector<Flow> flows = flows_of(machine, working);
    const Rates rates = fair_rates(flows, room_of(machine, flows));
    for (const Flow& flow : flows)
      speeds[index_of(flow.lane)] = rates[index_of(flow.lane)] / alone(machine, flow.lane);
    for (const double speed : speeds) {
      usable = usable && speed > 0 && std::isfinite(speed);
      shared_ = shared_ || speed < 1;
    }
  }
  shared_ = shared_ && usable;
}

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

}  // namespace stowage
