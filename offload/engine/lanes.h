// The lanes of a device that a plan runs on: those of lane_table.
#pragma once

#include <array>

#include "stowage/device.h"

namespace stowage {

class Lanes {
 public:
  explicit Lanes(Device& device);  // the device must outlive it

  LaneId operator[](LaneRole role) const { return lanes_[static_cast<std::size_t>(role)].id(); }

  // Blocks until nothing is in flight. Throws the first failure that a lane reports.
  void synchronise();
  // The same after a failure: swallows what the lanes report. False when a lane goes on failing, so
  // that work may still be in flight.
  bool settle() noexcept;

 private:
  bool synchronise_quietly(const Lane& lane) noexcept;

  Device& device_;
  std::array<Lane, lane_roles> lanes_;
};

}  // namespace stowage
