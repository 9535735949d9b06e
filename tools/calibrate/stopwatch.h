// Device time of what is enqueued on a lane, and its end: nothing on a lane may touch memory that is given
// up.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "stowage/device.h"

namespace stowage {

// The middle value (the lower one of two); 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Stopwatch {
 public:
  Stopwatch(Device& device, LaneId lane) : device_(device), lane_(lane), begin_(device), end_(device) {}

  // Seconds from the lane's start of what `enqueue` puts on it to its end. Waits for it.
  double seconds(const std::function<void()>& enqueue) {
    start();
    enqueue();
    stop();
    return read();
  }
  // The median of so many, after one that does not count.
  double median_seconds(int repetitions, const std::function<void()>& enqueue) {
    seconds(enqueue);
    std::vector<double> all;
    for (int i = 0; i < repetitions; ++i) all.push_back(seconds(enqueue));
    return median(std::move(all));
  }

  // For more than one lane at a time: enqueue between these two, then read.
  void start() { device_.record(begin_.id(), lane_); }
  void stop() { device_.record(end_.id(), lane_); }
  bool passed() { return device_.query(end_.id()); }  // whether the end is there
  double read() {                                     // waits for the end
    device_.synchronise(end_.id());
    return device_.elapsed_seconds(begin_.id(), end_.id());
  }

 private:
  Device& device_;
  LaneId lane_;
  Event begin_;
  Event end_;
};

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
