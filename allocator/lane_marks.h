// LaneMarks: events on one lane behind its releases, by which free bytes are known to be free for others.
//
// Releases are counted; a mark is an event recorded behind the first `count` releases. Events are made here
// and used again. Failures of the device are answered with false, kept for `take_failure`, and change
// nothing: a mark that cannot be made now is made later, and so is one on a lane that is being captured into
// a graph. Not synchronised, but for the clock.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <utility>
#include <vector>

#include "allocator/pending.h"
#include "stowage/device.h"

namespace stowage::caching {

class LaneMarks {
 public:
  // Marks kept at a time; a lane that has them all records its latest one anew.
  static constexpr std::size_t most = 16;

  // `clock`, of a lane of `device`, is written here alone, and outlives this.
  LaneMarks(Device& device, LaneClock& clock) : device_(device), clock_(clock) {}
  LaneMarks(const LaneMarks&) = delete;
  LaneMarks& operator=(const LaneMarks&) = delete;
  ~LaneMarks();

  std::uint64_t released() const { return released_; }
  Tag next_release() { return {&clock_, ++released_}; }

  // Returns true if the lane is being captured, or if the device cannot tell.
  bool is_captured();
  bool is_full() const { return marks_.size() == most; }
  // Records a mark behind all releases so far, unless there is one.
  bool mark();
  // Asks the device which marks have passed.
  bool poll();
  // Lets `lane`, which is not captured, wait until release number `count` is done with.
  bool hold(LaneId lane, std::uint64_t count);
  // Blocks the caller until all releases so far are done with.
  bool synchronise();
  std::exception_ptr take_failure() { return std::exchange(failure_, nullptr); }

 private:
  template <class Call>
  bool succeeds(Call&& call) {
    try {
      call();
      return true;
    } catch (const std::exception&) {
      failure_ = std::current_exception();
      return false;
    }
  }
  struct Mark {
    EventId event = 0;
    std::uint64_t count = 0;
  };
  bool is_marked() const { return released_ == (marks_.empty() ? passed() : marks_.back().count); }
  std::uint64_t passed() const { return clock_.passed.load(std::memory_order_relaxed); }
  void pop_passed();

  Device& device_;
  LaneClock& clock_;
  std::uint64_t released_ = 0;
  std::deque<Mark> marks_;  // the oldest mark comes first
  std::vector<EventId> idle_;
  std::exception_ptr failure_;
};

}  // namespace stowage::caching
