// Task: one entry of a lane's queue. Plain data, so that queueing it allocates nothing.
#pragma once

#include <cstdint>
#include <string>

#include "src/device/simulated/meeting.h"
#include "src/device/simulated/signals.h"
#include "stowage/bytes.h"
#include "stowage/device.h"

namespace stowage::simulated {

enum class TaskKind : std::uint8_t { launch, meet, copy, poison, record, wait };

struct Task {
  TaskKind kind = TaskKind::launch;
  bool fails = false;                 // launch, meet, copy: an injected fault
  bool clears = false;                // record: reports the lane's failure and ends it
  bool ignores_failure = false;       // wait: the failure behind the signal was reported before
  const std::string* name = nullptr;  // interned
  void (*function)(void* context) = nullptr;
  double (*meeting)(void* context, const Arrival& arrival) = nullptr;
  void* context = nullptr;
  void* to = nullptr;  // copy, poison
  const void* from = nullptr;
  Bytes bytes = 0;
  LaneRole direction = LaneRole::h2d;  // copy
  double ready = 0;                    // when it was enqueued, seconds on the device's clock
  double seconds = 0;                  // modelled duration
  SignalId signal = 0;                 // record, wait: the task holds one reference
};

}  // namespace stowage::simulated
