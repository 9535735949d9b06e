#include "src/device/cuda/host_order.h"

#include <algorithm>
#include <utility>

namespace stowage::cuda {
namespace {

void join(HostOrder::Clock& clock, const HostOrder::Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size(), 0);
  for (std::size_t i = 0; i < other.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

}  // namespace

bool HostOrder::Failed::was_reported_by(LaneId other) const {
  return std::find(reported.begin(), reported.end(), other) != reported.end();
}

void HostOrder::Failed::set_reported(LaneId other, bool value) {
  if (value && !was_reported_by(other)) reported.push_back(other);
  if (!value) std::erase(reported, other);
}

void HostOrder::add_lane(LaneId lane) {
  const MutexLock lock(mutex_);
  if (lanes_.size() <= lane) lanes_.resize(lane + 1);
  lanes_[lane].live = true;
  lanes_[lane].clock.clear();
}

void HostOrder::remove_lane(LaneId lane) {
  const MutexLock lock(mutex_);
  lanes_[lane].live = false;
  for (Failed& failed : failed_) failed.set_reported(lane, true);
  forget_settled();
}

void HostOrder::add_event(EventId event) {
  const MutexLock lock(mutex_);
  if (events_.size() <= event) events_.resize(event + 1);
  events_[event].clock.clear();
}

void HostOrder::record(EventId event, LaneId lane) {
  const MutexLock lock(mutex_);
  events_[event].lane = lane;
  events_[event].clock = lanes_[lane].clock;
}

void HostOrder::wait(LaneId lane, EventId event) {
  const MutexLock lock(mutex_);
  const EventState& from = events_[event];
  for (Failed& failed : failed_) {
    if (!failed.covered_by(from.clock)) continue;
    if (!failed.was_reported_by(from.lane))
      failed.set_reported(lane, false);
    else if (!failed.covered_by(lanes_[lane].clock))
      failed.set_reported(lane, true);
  }
  join(lanes_[lane].clock, from.clock);
}

void HostOrder::enqueue(LaneId lane, Clock& clock) {
  const MutexLock lock(mutex_);
  LaneState& state = lanes_[lane];
  if (state.clock.size() <= lane) state.clock.resize(lane + 1, 0);
  state.clock[lane] = ++state.functions;
  clock = state.clock;
}

bool HostOrder::may_run(LaneId lane, const Clock& clock) {
  const MutexLock lock(mutex_);
  return std::none_of(failed_.begin(), failed_.end(), [&](const Failed& failed) {
    return failed.covered_by(clock) && !failed.was_reported_by(lane);
  });
}

void HostOrder::fail(LaneId lane, const Clock& clock, HostFailure failure) {
  const MutexLock lock(mutex_);
  failed_.push_back({lane, clock[lane], std::make_shared<const HostFailure>(std::move(failure)), {}});
}

std::shared_ptr<const HostFailure> HostOrder::carried_by_event(EventId event) {
  const MutexLock lock(mutex_);
  const EventState& state = events_[event];
  for (const Failed& failed : failed_)
    if (failed.covered_by(state.clock) && !failed.was_reported_by(state.lane)) return failed.failure;
  return nullptr;
}

std::shared_ptr<const HostFailure> HostOrder::take(LaneId lane) {
  const MutexLock lock(mutex_);
  std::shared_ptr<const HostFailure> first;
  for (Failed& failed : failed_) {
    if (!failed.covered_by(lanes_[lane].clock) || failed.was_reported_by(lane)) continue;
    if (first == nullptr) first = failed.failure;
    failed.set_reported(lane, true);
  }
  forget_settled();
  return first;
}

// Forgets failures that no live lane carries: no event carries them either, since an event carries a failure
// only as long as the lane that recorded it.
void HostOrder::forget_settled() {
  std::erase_if(failed_, [this](const Failed& failed) STOWAGE_REQUIRES(mutex_) {
    for (LaneId lane = 0; lane < lanes_.size(); ++lane)
      if (lanes_[lane].live && failed.covered_by(lanes_[lane].clock) && !failed.was_reported_by(lane))
        return false;
    return true;
  });
}

}  // namespace stowage::cuda
