#include "src/device/simulated/lane_runner.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "src/device/simulated/memory.h"

namespace stowage::simulated {

void LaneRunner::perform(const Task& task) {
  time_ = std::max(time_, pace_ == Pace::measured ? surroundings_.clock->now() : task.ready);
  if (task.kind == TaskKind::record) return record(task);
  if (task.kind == TaskKind::wait) return wait(task);
  if (task.kind == TaskKind::meet) return meet(task);
  if (failure_ != nullptr) return;
  if (task.fails) return fail(task, "fault injected");
  switch (task.kind) {
    case TaskKind::launch:
      return launch(task);
    case TaskKind::copy:
      return copy(task);
    default:
      return fill_poison(task.to, task.bytes, surroundings_.poison);
  }
}

void LaneRunner::launch(const Task& task) {
  try {
    task.function(task.context);
    finish_work(task);
  } catch (const std::exception& error) {
    fail(task, error.what());
  } catch (...) {
    fail(task, "an exception of unknown type");
  }
}

void LaneRunner::meet(const Task& task) {
  const char* failure = task.fails ? "fault injected" : nullptr;
  if (failure_ != nullptr) failure = failure_->message.c_str();
  try {
    const double end = task.meeting(task.context, {time_, pace_ == Pace::virtual_time, failure});
    time_ = std::max(time_, pace_ == Pace::virtual_time ? end : surroundings_.clock->now());
  } catch (const std::exception& error) {
    if (failure == nullptr) return fail(task, error.what());
  }
  if (failure_ == nullptr && failure != nullptr) fail(task, failure);
}

void LaneRunner::copy(const Task& task) {
  if (surroundings_.wire != nullptr && pace_ == Pace::modelled) return copy_over_wire(task);
  std::memcpy(task.to, task.from, task.bytes);
  finish_work(task);
}

void LaneRunner::copy_over_wire(const Task& task) {
  const Clock& clock = *surroundings_.clock;
  const Wire::TransferId transfer = surroundings_.wire->begin(task.direction, time_, task.bytes);
  std::memcpy(task.to, task.from, task.bytes);
  const double copied = clock.now();
  double end = surroundings_.wire->end(transfer, copied);
  for (double now = copied; end > now; end = surroundings_.wire->end(transfer, now)) {
    clock.sleep_until(end);
    now = std::max(end, clock.now());
  }
  time_ = std::max(end, copied);
}

void LaneRunner::finish_work(const Task& task) {
  if (pace_ == Pace::virtual_time) {
    time_ += task.seconds;
    return;
  }
  const bool modelled = pace_ == Pace::modelled && task.kind == TaskKind::copy;
  time_ = std::max(modelled ? time_ + task.seconds : 0, surroundings_.clock->now());
  if (modelled) surroundings_.clock->sleep_until(time_);
}

void LaneRunner::record(const Task& task) {
  surroundings_.signals->complete(task.signal, time_, failure_);
  surroundings_.signals->release(task.signal);
  if (task.clears) failure_.reset();
}

void LaneRunner::wait(const Task& task) {
  const Outcome outcome = surroundings_.signals->await(task.signal);
  surroundings_.signals->release(task.signal);
  time_ = std::max(time_, outcome.time);
  if (failure_ == nullptr && !task.ignores_failure) failure_ = outcome.failure;
}

void LaneRunner::fail(const Task& task, const char* why) {
  const char* const call = task.kind == TaskKind::copy ? "copy" : "launch";
  try {
    failure_ = std::make_shared<const Failure>(Failure{
        fmt::format("{} '{}' ({} bytes) on {} failed: {}. Synchronise every lane to clear the failure, then "
                    "repeat the work",
                    call, *task.name, task.bytes, lane_, why),
        call, *task.name});
  } catch (const std::bad_alloc&) {
    failure_ = out_of_memory_;
  }
}

}  // namespace stowage::simulated
