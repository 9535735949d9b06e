// Device time of what is enqueued on a lane.
#pragma once

#include <functional>
#include <vector>

#include "stowage/device.h"

namespace stowage {

// The middle value (the lower one of two); 0 of none.
double median(std::vector<double> values);

class Stopwatch {
 public:
  Stopwatch(Device& device, LaneId lane) : device_(device), lane_(lane), begin_(device), end_(device) {}

  // Seconds from the lane's start of what `enqueue` puts on it to its end. Waits for it.
  double seconds(const std::function<void()>& enqueue);
  // The median of so many, after one that does not count.
  double median_seconds(int repetitions, const std::function<void()>& enqueue);

  // For more than one lane at a time: enqueue between these two, then read.
  void start() { device_.record(begin_.id(), lane_); }
  void stop() { device_.record(end_.id(), lane_); }
  bool passed() { return device_.query(end_.id()); }  // whether the end is there
  double read();                                      // waits for the end

 private:
  Device& device_;
  LaneId lane_;
  Event begin_;
  Event end_;
};

}  // namespace stowage
