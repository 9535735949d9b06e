// LaneSpeeds: how fast each lane works, by which lanes work at the same time.
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
Machine apart(Machine machine);

// The same machine with each direction of the link always as slow as it is beside the other one.
Machine beside_each_other(Machine machine);

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

}  // namespace stowage
