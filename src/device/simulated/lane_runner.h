// LaneRunner: what one lane does with its tasks, and its clock. One thread at a time.
//
// A failed lane skips launches, copies and poisoning, still waits and meets, and passes its failure on with
// what it records, until a record with `clears`. Its clock:
//   virtual_time  start = max(own time, enqueued, awaited); end = start + modelled seconds, or what a
//                 meeting says
//   modelled      the same for copies, which then sleep until their end: oversleeping one does not
//                 delay the next. Where the other direction slows them, the wire says when they end
//   measured      the steady clock
#pragma once

#include <memory>

#include "src/device/simulated/clock.h"
#include "src/device/simulated/signals.h"
#include "src/device/simulated/task.h"
#include "src/device/simulated/wire.h"
#include "stowage/simulated_device.h"

namespace stowage::simulated {

enum class Pace : std::uint8_t { virtual_time, modelled, measured };

class LaneRunner {
 public:
  struct Surroundings {
    Signals* signals = nullptr;
    const Clock* clock = nullptr;
    Poison poison = Poison::full;
    Wire* wire = nullptr;  // of a modelled lane whose copies meet others
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
  std::shared_ptr<const Failure> out_of_memory_;  // made while there is some
  double time_ = 0;
  std::shared_ptr<const Failure> failure_;
};

}  // namespace stowage::simulated
