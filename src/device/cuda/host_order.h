// HostOrder: knows which failed host functions come before a lane's or an event's point. A stream cannot skip
// work or carry a host function's error along an event, so this class does: every lane has a clock of the
// host functions known to come before its present point, `record` copies that clock into the event, and
// `wait` joins the event's clock into the lane's.
//
// A lane *carries* a failure if its clock covers the failure and the lane has not reported it yet (`take`).
// An event carries a failure if its clock covers it and the lane that recorded the event has not reported it.
// Host functions of a lane that carries a failure are skipped. Pure bookkeeping, no CUDA; thread-safe. Lanes
// and events have the device's ids, which may be reused once they are removed and their work is done.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/base/mutex.h"
#include "stowage/device.h"

namespace stowage::cuda {

struct HostFailure {
  std::string message;
  std::string work;  // the launch's name
};

class HostOrder {
 public:
  using Clock = std::vector<std::uint64_t>;  // number of host functions by lane; missing lanes have 0

  void add_lane(LaneId lane);
  void remove_lane(LaneId lane);
  void add_event(EventId event);

  void record(EventId event, LaneId lane);
  void wait(LaneId lane, EventId event);

  // Counts one more host function of `lane`, in the order of the calls, and sets its `clock` for may_run
  // and fail.
  void enqueue(LaneId lane, Clock& clock);
  bool may_run(LaneId lane, const Clock& clock);
  void fail(LaneId lane, const Clock& clock, HostFailure failure);

  // Returns the oldest failure that the event carries; null if none.
  std::shared_ptr<const HostFailure> carried_by_event(EventId event);
  // Returns the oldest failure that the lane carries; null if none. The lane has then reported all
  // its failures.
  std::shared_ptr<const HostFailure> take(LaneId lane);

 private:
  struct LaneState {
    bool live = false;
    std::uint64_t functions = 0;  // number of functions ever enqueued under this lane's id
    Clock clock;
  };
  struct EventState {
    LaneId lane = 0;  // the lane that recorded it last
    Clock clock;
  };
  struct Failed {
    LaneId lane = 0;
    std::uint64_t function = 0;  // the function's number on its lane, from 1
    std::shared_ptr<const HostFailure> failure;
    std::vector<LaneId> reported;  // lanes that have reported it
    bool covered_by(const Clock& clock) const { return lane < clock.size() && clock[lane] >= function; }
    bool was_reported_by(LaneId other) const;
    void set_reported(LaneId other, bool value);
  };
  void forget_settled() STOWAGE_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<LaneState> lanes_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<EventState> events_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<Failed> failed_ STOWAGE_GUARDED_BY(mutex_);  // oldest first
};

}  // namespace stowage::cuda
