#include "offload/plan/lane_speeds.h"

#include <algorithm>
#include <cmath>

namespace stowage {
namespace {

// Who takes of host memory.
constexpr std::array takers{LaneRole::h2d, LaneRole::d2h, LaneRole::host};
constexpr bool touches_host(const LaneRow& lane) { return lane.touches(MemoryId::host); }
static_assert(std::count_if(lane_table.begin(), lane_table.end(), touches_host) ==
              static_cast<int>(takers.size()));
using TakerRates = std::array<double, takers.size()>;

// The level up to which each taker gets what it wants: wants above it get the level (water-filling).
double fair_level(TakerRates wants, double total) {
  std::sort(wants.begin(), wants.end());
  double left = total;
  for (std::size_t i = 0; i < wants.size(); ++i) {
    const double share = left / static_cast<double>(wants.size() - i);
    if (wants.at(i) > share) return share;
    left -= wants.at(i);
  }
  return as_alone;
}

double alone(const Machine& machine, LaneRole lane) {
  if (lane == LaneRole::host) return machine.host_bytes_per_second;
  return lane == LaneRole::h2d ? machine.h2d.bytes_per_second : machine.d2h.bytes_per_second;
}

// Bytes per second that a taker could move but for host memory; 0 for one that does not work.
double wanted(const Machine& machine, LaneMask working, LaneRole lane) {
  if ((working & mask_of(lane)) == 0) return 0;
  const double rate = alone(machine, lane);
  if (lane == LaneRole::host)
    return (working & mask_of(LaneRole::compute)) != 0 ? rate * machine.host_beside_compute : rate;
  const LaneMask both = mask_of(LaneRole::h2d) | mask_of(LaneRole::d2h);
  if ((working & both) != both) return rate;
  return std::min(
      rate, lane == LaneRole::h2d ? machine.h2d_both_bytes_per_second : machine.d2h_both_bytes_per_second);
}

double compute_speed(const Machine& machine, LaneMask working) {
  double speed = 1;
  for (const LaneRole link : {LaneRole::h2d, LaneRole::d2h})
    if ((working & mask_of(link)) != 0) speed *= machine.compute_beside_copy;
  return (working & mask_of(LaneRole::host)) != 0 ? speed * machine.compute_beside_host : speed;
}

}  // namespace

Machine apart(Machine machine) {
  machine.h2d_both_bytes_per_second = machine.d2h_both_bytes_per_second = as_alone;
  machine.host_total_bytes_per_second = as_alone;
  machine.compute_beside_copy = machine.compute_beside_host = machine.host_beside_compute = 1;
  return machine;
}

Machine beside_each_other(Machine machine) {
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
    speeds[index_of(LaneRole::compute)] = compute_speed(machine, working);
    speeds[index_of(LaneRole::peer)] = 1;
    TakerRates wants{};
    for (std::size_t i = 0; i < takers.size(); ++i) wants.at(i) = wanted(machine, working, takers.at(i));
    const double level = fair_level(wants, machine.host_total_bytes_per_second);
    for (std::size_t i = 0; i < takers.size(); ++i)
      speeds[static_cast<std::size_t>(takers.at(i))] =
          wants.at(i) > 0 ? std::min(wants.at(i), level) / alone(machine, takers.at(i)) : 1;
    for (const double speed : speeds) {
      usable = usable && speed > 0 && std::isfinite(speed);
      shared_ = shared_ || speed < 1;
    }
  }
  shared_ = shared_ && usable;
}

}  // namespace stowage
