// Signals: one completion flag per `record`, so that a wait refers to the record that it captured, however
// often its event is recorded again. Pooled and reference-counted; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/mutex.h"
#include "stowage/device.h"

namespace stowage::simulated {

using SignalId = std::uint32_t;

// The reason that a lane's work failed.
struct Failure {
  std::string message;
  std::string call;
  std::string work = {};  // the name given to the launch or copy
};

struct Outcome {
  bool done = false;
  double time = 0;                         // seconds, on the device's clock
  std::shared_ptr<const Failure> failure;  // failure of the lane before it came to the signal
  bool cleared = false;                    // the lane had failed, and has been synchronised since
};

class Signals {
 public:
  void reserve(std::size_t signals);
  SignalId acquire(LaneId lane);  // returns a fresh signal with one reference
  void retain(SignalId signal);
  void release(SignalId signal);

  void complete(SignalId signal, double time, std::shared_ptr<const Failure> failure);
  Outcome await(SignalId signal);  // blocks until the signal is done
  Outcome peek(SignalId signal);
  // Clears the failures that signals of `lane` carry, as they have been reported.
  void clear_failures(LaneId lane);

 private:
  struct Signal {
    std::uint32_t references = 0;
    LaneId lane = 0;
    Outcome outcome;
  };
  // A waiting thread is woken only by the few signals that share its place.
  static constexpr std::size_t places = 64;
  CondVar& completed(SignalId signal) { return completed_[signal % places]; }

  Mutex mutex_;
  std::array<CondVar, places> completed_;
  std::vector<Signal> signals_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<SignalId> free_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::simulated
