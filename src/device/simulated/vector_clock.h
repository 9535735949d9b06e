// A vector clock: for each lane, how many of its operations are known to have happened.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "stowage/device.h"

namespace stowage::simulated {

class VectorClock {
 public:
  // True when the lane's operation number `tick` (from 1) has happened.
  bool covers(LaneId lane, std::uint64_t tick) const { return lane < ticks_.size() && ticks_[lane] >= tick; }

  // Counts one more operation of `lane` and returns its number.
  std::uint64_t advance(LaneId lane) {
    if (ticks_.size() <= lane) ticks_.resize(lane + 1, 0);
    return ++ticks_[lane];
  }

  void reserve(std::size_t lanes) { ticks_.reserve(lanes); }

  void join(const VectorClock& other) {
    if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size(), 0);
    for (std::size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
  }

 private:
  std::vector<std::uint64_t> ticks_;  // by lane; missing ones are 0
};

}  // namespace stowage::simulated
