#include "stowage/simulated_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "src/device/simulated/device_implementation.h"
#include "stowage/error.h"

namespace stowage {
namespace simulated {

void Implementation::begin_call(std::string_view call) {
  if (faults_.next_call())
    throw DeviceError(fmt::format("{}: fault injected; repeat the call", call), std::string(call));
}

bool Implementation::begin_work(std::string_view call, LaneId lane) {
  const auto fault = faults_.next_call();
  if (fault == Fault::Kind::call)
    throw DeviceError(fmt::format("{}: fault injected; repeat the call", call), std::string(call));
  expect_lane(lane, call);
  return fault.has_value();
}

void Implementation::begin_allocating_call(std::string_view call, MemoryKind kind, Bytes bytes) {
  if (faults_.next_call()) throw memory_.out_of_memory(kind, bytes, fmt::format("{} (fault injected)", call));
}

void Implementation::expect_lane(LaneId lane, std::string_view call) const {
  if (!checker_.has_lane(lane) || lanes_[lane] == nullptr)
    throw InvalidInput(fmt::format("{}: there is no lane {}; pass what create_lane returned", call, lane));
}

void Implementation::submit(LaneId lane, Task task) {
  task.ready = now();
  lanes_[lane]->submit(task);
}

void Implementation::join_host(SignalId signal, double time) {
  checker_.synchronise(signal_clocks_[signal]);
  host_time_ = std::max(host_time_, time);
}

double Implementation::now() const {
  if (options_.executor == Executor::threaded) return clock_.now();
  return options_.host_orders ? host_time_ : 0;
}

Pace Implementation::pace(LaneRole role) const {
  if (options_.executor == Executor::virtual_time) return Pace::virtual_time;
  const bool copies = role == LaneRole::h2d || role == LaneRole::d2h;
  return copies && link(role).throttled ? Pace::modelled : Pace::measured;
}

DeviceCounters Implementation::counters() const {
  const MutexLock lock(mutex_);
  DeviceCounters result = counters_;
  result.calls = faults_.calls();
  return result;
}

void Implementation::reset_counters() {
  const MutexLock lock(mutex_);
  counters_ = {};
  faults_.reset_calls();
}

void Implementation::set_fault(Fault fault) {
  const MutexLock lock(mutex_);
  faults_.set(fault);
}

void Implementation::clear_fault() {
  const MutexLock lock(mutex_);
  faults_.clear();
}

bool Implementation::fault_fired() const {
  const MutexLock lock(mutex_);
  return faults_.fired();
}

}  // namespace simulated

std::unique_ptr<SimulatedDevice> open_simulated_device(const SimulatedOptions& options) {
  return std::make_unique<simulated::Implementation>(options);
}

}  // namespace stowage
