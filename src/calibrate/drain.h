// Memory may be given up only when nothing on a lane touches it any more, also while an error passes.
#pragma once

#include "stowage/device.h"

namespace stowage {

// Waits for the lane when it dies; declared behind the memory that the lane's work touches.
class Drain {
 public:
  Drain(Device& device, LaneId lane) : device_(device), lane_(lane) {}
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;
  ~Drain() {
    try {
      device_.synchronise_lane(lane_);
    } catch (...) {  // the work has failed and is over; whoever waited before was told
    }
  }

 private:
  Device& device_;
  LaneId lane_;
};

}  // namespace stowage
