// How fast each lane works, by which lanes work at the same time, and what a transfer costs the other lanes.
#pragma once

#include <array>
#include <cstddef>

#include "stowage/device.h"
#include "stowage/machine.h"

namespace stowage {

// Lanes by bits of LaneRole; a link lane counts while it moves bytes, not while its latency passes.
using LaneMask = std::size_t;

constexpr LaneMask mask_of(LaneRole lane) { return LaneMask{1} << static_cast<std::size_t>(lane); }

// The same machine with lanes that do not slow each other.
Machine without_contention(Machine machine);

// The same machine with each direction of the link always as slow as it is beside the other one.
Machine with_link_contention(Machine machine);

class LaneSpeeds {
 public:
  // Each direction of the link has its rate alone or beside the other one. Copies and the host step share
  // host memory, and copies and peers' bytes the link where those pass through it (Machine::peer_path), by
  // max-min fairness: equal shares, and what one cannot use goes to the others (Bertsekas and Gallager, "Data
  // Networks", section 6.5.2).
  explicit LaneSpeeds(const Machine& machine);

  // Of a lane of `working`, as a share of its speed alone: above 0, at most 1.
  double of(LaneMask working, LaneRole lane) const {
    return speeds_[working][static_cast<std::size_t>(lane)];
  }
  // Whether any lane ever slows another. False too for a machine whose rates are no positive numbers, on
  // which no step takes a finite time.
  bool shared() const { return shared_; }

 private:
  std::array<std::array<double, lane_roles>, std::size_t{1} << lane_roles> speeds_{};
  bool shared_ = false;
};

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

}  // namespace stowage
