// The speed of each lane beside other lanes at work, and the time that a transfer costs the other lanes.
#pragma once

#include <array>
#include <cstddef>

#include "stowage/device.h"
#include "stowage/machine.h"

namespace stowage {

// A set of lanes, one bit for each LaneRole. A link lane is in it while it moves bytes, not
// during its latency.
using LaneMask = std::size_t;

constexpr LaneMask mask_of(LaneRole lane) { return LaneMask{1} << static_cast<std::size_t>(lane); }

// Returns the machine with lanes that do not slow each other.
Machine without_contention(Machine machine);

// Returns the machine in which each direction of the link has the speed that it has
// beside the other direction.
Machine with_link_contention(Machine machine);

class LaneSpeeds {
 public:
  // Each direction of the link has one rate alone and another beside the other direction. Copies and the host
  // step share host memory, and copies and peers' bytes share the link if peers' bytes pass through it
  // (Machine::peer_path). Sharing is max-min fair: all get the same rate, and what one cannot use goes to the
  // others (Bertsekas and Gallager, "Data Networks", section 6.5.2).
  explicit LaneSpeeds(const Machine& machine);

  // Returns the speed of a lane of `working` as a fraction of its speed alone: above 0, at most 1.
  double of(LaneMask working, LaneRole lane) const {
    return speeds_[working][static_cast<std::size_t>(lane)];
  }
  // Returns whether any lane ever slows another. Also false if some rate of the machine is not a positive
  // number; on such a machine no step takes a finite time.
  bool shared() const { return shared_; }

 private:
  std::array<std::array<double, lane_roles>, std::size_t{1} << lane_roles> speeds_{};
  bool shared_ = false;
};

// The work that each lane is charged for the work of other lanes. For each lane, whichever lanes work with
// it: its own progress (in seconds of its work alone) plus these fractions of the other lanes' progress is
// at most the time that passes. So a bound that adds the charges stays a bound. All charges are 0 if lanes do
// not slow each other.
struct LaneSharing {
  double of_in = 0;                  // part of a prefetch's time, charged to the offloads' lane
  double of_out = 0;                 // part of an offload's time, charged to the prefetches' lane
  double host_seconds_per_byte = 0;  // seconds for each byte of any copy, charged to the host lane
  // Fractions of the time in which bytes come from peers, charged to the prefetches', the offloads' and the
  // host's lane.
  double peer_to_h2d = 0;
  double peer_to_d2h = 0;
  double peer_to_host = 0;
};
LaneSharing sharing_of(const Machine& machine);

}  // namespace stowage
