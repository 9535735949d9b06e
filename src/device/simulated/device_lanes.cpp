#include "src/device/simulated/device_implementation.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "stowage/error.h"

namespace stowage::simulated {

LaneId Implementation::create_lane(LaneRole role) {
  const MutexLock lock(mutex_);
  begin_call("create_lane");
  const LaneId lane = checker_.add_lane(role);
  if (lanes_.size() <= lane) lanes_.resize(lane + 1);
  const LaneRunner::Surroundings surroundings{&signals_, &clock_, options_.poison, wire_ ? &*wire_ : nullptr};
  lanes_[lane] =
      make_execution_lane(options_.executor, {surroundings, pace(role), checker_.describe_lane(lane)});
  return lane;
}

void Implementation::destroy_lane(LaneId lane) {
  std::unique_ptr<ExecutionLane> ending;
  {
    const MutexLock lock(mutex_);
    expect_lane(lane, "destroy_lane");
    ending = std::move(lanes_[lane]);
  }
  ending.reset();  // joins the lane's thread, and so runs without the mutex
  const MutexLock lock(mutex_);
  checker_.remove_lane(lane);
}

EventId Implementation::create_event() { return add_event(true); }

EventId Implementation::create_untimed_event() { return add_event(false); }

EventId Implementation::add_event(bool timed) {
  const MutexLock lock(mutex_);
  begin_call("create_event");
  const EventId event = events_.create(timed);
  // Room for every event's own signal, and for earlier signals that queued waits still hold.
  reserve_signals(4 * (event + std::size_t{16}));
  return event;
}

void Implementation::destroy_event(EventId event) {
  const MutexLock lock(mutex_);
  events_.destroy(event, "destroy_event");
}

void Implementation::record(EventId event, LaneId lane) {
  const MutexLock lock(mutex_);
  begin_call("record");
  expect_lane(lane, "record");
  events_.expect(event, "record");
  events_.set(event, submit_record(lane, false));
}

void Implementation::wait(LaneId lane, EventId event) {
  const MutexLock lock(mutex_);
  begin_call("wait");
  expect_lane(lane, "wait");
  const auto signal = events_.signal(event, "wait");
  if (!signal) return;
  checker_.wait(lane, signal_clocks_[*signal]);
  signals_.retain(*signal);
  Task task{.kind = TaskKind::wait};
  task.ignores_failure = signals_.peek(*signal).cleared;
  task.signal = *signal;
  submit(lane, task);
}

bool Implementation::query(EventId event) {
  const MutexLock lock(mutex_);
  begin_call("query");
  const auto signal = events_.signal(event, "query");
  if (!signal) return true;
  const Outcome outcome = signals_.peek(*signal);
  if (outcome.done) join_host(*signal, outcome.time);
  return outcome.done;
}

void Implementation::synchronise(EventId event) {
  SignalId signal = 0;
  {
    const MutexLock lock(mutex_);
    begin_call("synchronise");
    const auto recorded = events_.signal(event, "synchronise");
    if (!recorded) return;
    signal = *recorded;
    signals_.retain(signal);
  }
  const Outcome outcome = signals_.await(signal);
  {
    const MutexLock lock(mutex_);
    join_host(signal, outcome.time);
    signals_.release(signal);
  }
  if (outcome.failure != nullptr && !outcome.cleared)
    throw DeviceError(outcome.failure->message, outcome.failure->call, outcome.failure->work);
}

void Implementation::synchronise_lane(LaneId lane) {
  SignalId signal = 0;
  {
    const MutexLock lock(mutex_);
    begin_call("synchronise_lane");
    expect_lane(lane, "synchronise_lane");
    signal = submit_record(lane, true);
  }
  const Outcome outcome = signals_.await(signal);
  {
    const MutexLock lock(mutex_);
    join_host(signal, outcome.time);
    signals_.release(signal);
    if (outcome.failure != nullptr) signals_.clear_failures(lane);
  }
  if (outcome.failure != nullptr)
    throw DeviceError(outcome.failure->message, outcome.failure->call, outcome.failure->work);
}

double Implementation::elapsed_seconds(EventId from, EventId to) {
  const MutexLock lock(mutex_);
  begin_call("elapsed_seconds");
  events_.expect_timed(from, "elapsed_seconds");
  events_.expect_timed(to, "elapsed_seconds");
  const auto begin = events_.signal(from, "elapsed_seconds"), end = events_.signal(to, "elapsed_seconds");
  const Outcome first = begin ? signals_.peek(*begin) : Outcome{};
  const Outcome last = end ? signals_.peek(*end) : Outcome{};
  if (!first.done || !last.done)
    throw InvalidInput(
        fmt::format("elapsed_seconds: event {} is not recorded and finished; synchronise with it first",
                    first.done ? to : from));
  return last.time - first.time;
}

SignalId Implementation::submit_record(LaneId lane, bool clears) {
  const SignalId signal = signals_.acquire(lane);  // the caller's reference
  reserve_signals(signal + std::size_t{1});
  checker_.record(lane, signal_clocks_[signal]);
  signals_.retain(signal);  // the task's reference
  Task task{.kind = TaskKind::record};
  task.clears = clears;
  task.signal = signal;
  submit(lane, task);
  return signal;
}

void Implementation::reserve_signals(std::size_t signals) {
  if (signals <= signal_clocks_.size()) return;
  const std::size_t first = signal_clocks_.size();
  signal_clocks_.resize(std::max(signals, 2 * first));
  for (std::size_t i = first; i < signal_clocks_.size(); ++i) signal_clocks_[i].reserve(16);
  signals_.reserve(signal_clocks_.size());
}

}  // namespace stowage::simulated
