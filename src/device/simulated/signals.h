// Signals: one completion flag per `record`, so that a wait holds for the record it captured however
// often its event is recorded again. Pooled and counted by references; thread-safe.
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

// Why a lane's work failed.
struct Failure {
  std::string message;
  std::string call;
  std::string work = {};  // the name given to the launch or copy
};

struct Outcome {
  bool done = false;
  double time = 0;                         // seconds, on the device's clock
  std::shared_ptr<const Failure> failure;  // the lane had failed before it came here
  bool cleared = false;                    // … and has been synchronised since
};

class Signals {
 public:
  void reserve(std::size_t signals);
  SignalId acquire(LaneId lane);  // fresh, with one reference
  void retain(SignalId signal);
  void release(SignalId signal);

  void complete(SignalId signal, double time, std::shared_ptr<const Failure> failure);
  Outcome await(SignalId signal);  // blocks until done
  Outcome peek(SignalId signal);
  // The failures that signals of `lane` carry have been reported.
  void clear_failures(LaneId lane);

 private:
  struct Signal {
    std::uint32_t references = 0;
    LaneId lane = 0;
    Outcome outcome;
  };
  // Threads that wait for one signal are not woken by others, but for those few that share a place.
  static constexpr std::size_t places = 64;
  CondVar& completed(SignalId signal) { return completed_[signal % places]; }

  Mutex mutex_;
  std::array<CondVar, places> completed_;
  std::vector<Signal> signals_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<SignalId> free_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::simulated
