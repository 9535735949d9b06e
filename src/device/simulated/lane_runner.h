// LaneRunner: performs the tasks of one lane, and keeps its clock. Used by a single thread at a time.
//
// A failed lane skips launches, copies and poisoning, but still waits and meets. It passes its failure on
// with its records, until a record with `clears`. The clock:
//   virtual_time  start = max(own time, enqueued, awaited); end = start + modelled seconds, or what a
//                 meeting says
//   modelled      the same for copies, which then sleep until their end: oversleeping one does not
//                 delay the next. Where the other direction slows them, the wire says when they end
//   measured      the steady clock
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "src/device/simulated/meeting.h"
#include "src/device/simulated/signals.h"
#include "src/device/simulated/wire.h"
#include "stowage/bytes.h"
#include "stowage/device.h"
#include "stowage/simulated_device.h"

namespace stowage::simulated {

// One entry of a lane's queue: plain data, so that queueing it allocates nothing.
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
  void* to = nullptr;  // target of copy and poison
  const void* from = nullptr;
  Bytes bytes = 0;
  LaneRole direction = LaneRole::h2d;  // direction of a copy
  double ready = 0;                    // time of enqueueing, seconds on the device's clock
  double seconds = 0;                  // modelled duration
  SignalId signal = 0;                 // record, wait: the task holds one reference
};

// Seconds since the device was opened.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double now() const = 0;
  virtual void sleep_until(double seconds) const = 0;
};

class SteadyClock final : public Clock {
 public:
  double now() const override { return std::chrono::duration<double>(Steady::now() - start_).count(); }
  void sleep_until(double seconds) const override {
    const std::chrono::duration<double> since_start(seconds);
    std::this_thread::sleep_until(start_ + std::chrono::duration_cast<Steady::duration>(since_start));
  }

 private:
  using Steady = std::chrono::steady_clock;
  Steady::time_point start_ = Steady::now();
};

enum class Pace : std::uint8_t { virtual_time, modelled, measured };

class LaneRunner {
 public:
  struct Surroundings {
    Signals* signals = nullptr;
    const Clock* clock = nullptr;
    Poison poison = Poison::full;
    Wire* wire = nullptr;  // set for a modelled lane whose copies compete with others
  };
  LaneRunner(const Surroundings& surroundings, Pace pace, std::string lane)
      : surroundings_(surroundings),
        pace_(pace),
        lane_(std::move(lane)),
        out_of_memory_(std::make_shared<const Failure>(
            Failure{"work on " + lane_ + " failed: memory of the host ran out, also for what to say of it",
                    "launch"})) {}

  void perform(const Task& task);

 private:
  void launch(const Task& task);
  void meet(const Task& task);
  void copy(const Task& task);
  void record(const Task& task);
  void wait(const Task& task);
  void copy_over_wire(const Task& task);
  void finish_work(const Task& task);
  void fail(const Task& task, const char* why);

  Surroundings surroundings_;
  Pace pace_;
  std::string lane_;                              // "compute lane 0"
  std::shared_ptr<const Failure> out_of_memory_;  // allocated while there is memory
  double time_ = 0;
  std::shared_ptr<const Failure> failure_;
};

}  // namespace stowage::simulated
