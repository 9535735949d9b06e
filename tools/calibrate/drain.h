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
    for (int attempt = 0; attempt < 3 && !done(); ++attempt) {
    }
  }

 private:
  // A failure told here is that of the work, which is over, or of the call, which can be repeated; whoever
  // waited before was told.
  bool done() noexcept {
    try {
      device_.synchronise_lane(lane_);
      return true;
    } catch (...) {
      return false;
    }
  }

  Device& device_;
  LaneId lane_;
};

}  // namespace stowage
