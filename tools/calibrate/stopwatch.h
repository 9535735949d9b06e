// Device time of work that is enqueued on a lane, and the wait for its end.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "stowage/device.h"

namespace stowage {

// Returns the middle value, the lower one of two; 0 for no values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Stopwatch {
 public:
  Stopwatch(Device& device, LaneId lane) : device_(device), lane_(lane), begin_(device), end_(device) {}

  // Returns the seconds from begin to end of the work that `enqueue` puts on the lane. Waits for that work.
  double seconds(const std::function<void()>& enqueue) {
    start();
    enqueue();
    stop();
    return read();
  }
  // Returns the median of `runs` runs, after a first one that does not count.
  double median_seconds(int repetitions, const std::function<void()>& enqueue) {
    seconds(enqueue);
    std::vector<double> all;
    for (int i = 0; i < repetitions; ++i) all.push_back(seconds(enqueue));
    return median(std::move(all));
  }

  // To time more than one lane at once: enqueue between `start` and `stop`, then read.
  void start() { device_.record(begin_.id(), lane_); }
  void stop() { device_.record(end_.id(), lane_); }
  bool passed() { return device_.query(end_.id()); }  // returns whether the end has been reached
  double read() {                                     // waits for the end, and returns the seconds
    device_.synchronise(end_.id());
    return device_.elapsed_seconds(begin_.id(), end_.id());
  }

 private:
  Device& device_;
  LaneId lane_;
  Event begin_;
  Event end_;
};

// Waits for the lane when it dies, also while an error passes, so that memory is given up only when nothing
// on the lane touches it. Declare a Drain behind that memory.
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
  // A failure here is that of the work, which is over and was reported to whoever waited for it, or that of
  // the call, which can be repeated.
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
