#include "src/device/simulated/signals.h"

namespace stowage::simulated {

void Signals::reserve(std::size_t signals) {
  const MutexLock lock(mutex_);
  signals_.reserve(signals);
  free_.reserve(signals);
}

SignalId Signals::acquire(LaneId lane) {
  const MutexLock lock(mutex_);
  if (free_.empty()) {
    free_.push_back(static_cast<SignalId>(signals_.size()));
    signals_.emplace_back();
  }
  const SignalId id = free_.back();
  free_.pop_back();
  signals_[id] = {1, lane, {}};
  return id;
}

void Signals::retain(SignalId signal) {
  const MutexLock lock(mutex_);
  ++signals_[signal].references;
}

void Signals::release(SignalId signal) {
  const MutexLock lock(mutex_);
  if (--signals_[signal].references > 0) return;
  signals_[signal].outcome = {};
  free_.push_back(signal);
}

void Signals::complete(SignalId signal, double time, std::shared_ptr<const Failure> failure) {
  const MutexLock lock(mutex_);
  signals_[signal].outcome = {true, time, std::move(failure), false};
  completed(signal).notify_all();
}

Outcome Signals::await(SignalId signal) {
  const MutexLock lock(mutex_);
  while (!signals_[signal].outcome.done) completed(signal).wait(mutex_);
  return signals_[signal].outcome;
}

Outcome Signals::peek(SignalId signal) {
  const MutexLock lock(mutex_);
  return signals_[signal].outcome;
}

void Signals::clear_failures(LaneId lane) {
  const MutexLock lock(mutex_);
  for (Signal& signal : signals_)
    if (signal.lane == lane && signal.outcome.failure != nullptr) signal.outcome.cleared = true;
}

}  // namespace stowage::simulated
