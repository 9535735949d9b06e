// The lanes of a device that a plan runs on: all of lane_table, the peer lane only if the plan uses it.
#pragma once

#include <array>
#include <optional>

#include "stowage/device.h"
#include "stowage/plan.h"

namespace stowage {

class Lanes {
 public:
  Lanes(Device& device, const Plan& plan);  // `device` must outlive the lanes

  LaneId operator[](LaneRole role) const { return lanes_.at(index_of(role))->id(); }
  // Returns, by row of lane_table, the native stream of a lane that computes on the device, else null.
  std::array<void*, lane_roles> streams() const;

  // Blocks until nothing is in flight. Throws the first failure that a lane reports.
  void synchronise();
  // Blocks until nothing is in flight, after a failure, and swallows the failures that lanes report. Returns
  // false if a lane goes on failing: work may then still be in flight.
  bool settle() noexcept;

 private:
  bool synchronise_quietly(const Lane& lane) noexcept;

  Device& device_;
  std::array<std::optional<Lane>, lane_roles> lanes_;
};

}  // namespace stowage
