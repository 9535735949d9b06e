// HostOrder: which failed host function lies before what. A stream cannot skip work or carry an error of a
// host function along an event, so this does: every lane has a clock of the host functions known to come
// before its present point, `record` copies it into the event, `wait` joins that into the lane.
//
// A lane *carries* a failure when its clock covers it and the lane has not reported it yet (`take`); an
// event, when its clock covers it and the lane that recorded it has not. Host functions of a lane that
// carries one are skipped. Pure bookkeeping, no CUDA; thread-safe. Lanes and events by the device's ids,
// which may be used again once they are removed and their work is done.
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
  using Clock = std::vector<std::uint64_t>;  // by lane: how many of its host functions; missing ones are 0

  void add_lane(LaneId lane);
  void remove_lane(LaneId lane);
  void add_event(EventId event);

  void record(EventId event, LaneId lane);
  void wait(LaneId lane, EventId event);

  // One more host function of `lane`, in the order of the calls. `clock` is then for may_run and fail.
  void enqueue(LaneId lane, Clock& clock);
  bool may_run(LaneId lane, const Clock& clock);
  void fail(LaneId lane, const Clock& clock, HostFailure failure);

  // The oldest failure that the event carries; null if none.
  std::shared_ptr<const HostFailure> carried_by_event(EventId event);
  // That the lane carries. From here on the lane has reported all it carries.
  std::shared_ptr<const HostFailure> take(LaneId lane);

 private:
  struct LaneState {
    bool live = false;
    std::uint64_t functions = 0;  // ever enqueued under this id
    Clock clock;
  };
  struct EventState {
    LaneId lane = 0;  // that recorded it last
    Clock clock;
  };
  struct Failed {
    LaneId lane = 0;
    std::uint64_t function = 0;  // number on its lane, from 1
    std::shared_ptr<const HostFailure> failure;
    std::vector<LaneId> reported;  // by these
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
