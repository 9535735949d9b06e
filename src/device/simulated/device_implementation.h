// The simulated Device itself: memory, checker, lanes, events and faults under one lock. The calls are in
// device_memory.cpp, device_lanes.cpp and device_work.cpp, their common parts in simulated_device.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "src/base/mutex.h"
#include "src/device/simulated/access_checker.h"
#include "src/device/simulated/access_history.h"
#include "src/device/simulated/event_table.h"
#include "src/device/simulated/execution_lane.h"
#include "src/device/simulated/fault.h"
#include "src/device/simulated/meeting.h"
#include "src/device/simulated/memory.h"
#include "src/device/simulated/wire.h"

namespace stowage::simulated {

// A mutex guards the tables and the checker. In virtual time work also runs under it, so work may not call
// the device, and a meeting blocks under it. Synchronising waits on a signal without it.
class Implementation final : public MeetingDevice {
 public:
  explicit Implementation(const SimulatedOptions& options)
      : options_(options),
        wire_(wire_for(options)),
        memory_(options.capacity, options.host_capacity, options.poison),
        checker_(options.host_orders) {}

  DeviceInfo info() const override { return {"simulated", "simulated"}; }
  MemoryInfo memory_info() const override {
    const MutexLock lock(mutex_);
    return memory_.device_info();
  }

  void* allocate(MemoryKind kind, Bytes bytes) override;
  void release(MemoryKind kind, void* address) override;
  Bytes granularity() const override { return Memory::granularity; }
  void* reserve(Bytes bytes) override;
  void unreserve(void* address) override;
  void map_pieces(void* range, Bytes offset, Bytes bytes, Bytes piece) override;
  void unmap(void* range, Bytes offset, Bytes bytes) override;

  LaneId create_lane(LaneRole role) override;
  void destroy_lane(LaneId lane) override;
  EventId create_event() override;
  EventId create_untimed_event() override;
  void destroy_event(EventId event) override;

  void record(EventId event, LaneId lane) override;
  void wait(LaneId lane, EventId event) override;
  bool query(EventId event) override;
  void synchronise(EventId event) override;
  void synchronise_lane(LaneId lane) override;
  double elapsed_seconds(EventId from, EventId to) override;

  void copy(LaneId lane, void* to, const void* from, Bytes bytes, std::string_view name) override;
  void launch(LaneId lane, const Launch& launch) override;
  void discard(LaneId lane, void* address, Bytes bytes) override;

  std::vector<Access> undefined_parts(LaneId lane, std::string_view name, const Access& bytes) override;
  void meet(LaneId lane, const Meeting& meeting) override;

  DeviceCounters counters() const override;
  void reset_counters() override;
  void set_fault(Fault fault) override;
  void clear_fault() override;
  bool fault_fired() const override;

 private:
  // The work that touches memory, for messages.
  struct Work {
    std::string_view call;
    std::string_view name;
    LaneId lane;
  };

  // Count the call and check the lane. Throw for an injected fault of the call; true: the work shall fail.
  void begin_call(std::string_view call) STOWAGE_REQUIRES(mutex_);
  bool begin_work(std::string_view call, LaneId lane) STOWAGE_REQUIRES(mutex_);
  void begin_allocating_call(std::string_view call, MemoryKind kind, Bytes bytes) STOWAGE_REQUIRES(mutex_);
  void expect_lane(LaneId lane, std::string_view call) const STOWAGE_REQUIRES(mutex_);

  // Returns the access as bytes of one live allocation. Throws AccessViolation.
  RangeAccess resolve(const Work& work, const Access& access) STOWAGE_REQUIRES(mutex_);
  void resolve_all(const Work& work, std::span<const Access> accesses, std::vector<RangeAccess>& ranges)
      STOWAGE_REQUIRES(mutex_);
  void touch(const RangeAccess& access) STOWAGE_REQUIRES(mutex_);
  void expect_kinds(const Work& work, const void* to, const void* from) STOWAGE_REQUIRES(mutex_);
  void forget_allocation(Allocation& allocation, std::string_view call) STOWAGE_REQUIRES(mutex_);

  EventId add_event(bool timed);
  void submit(LaneId lane, Task task) STOWAGE_REQUIRES(mutex_);
  SignalId submit_record(LaneId lane, bool clears) STOWAGE_REQUIRES(mutex_);
  void reserve_signals(std::size_t signals) STOWAGE_REQUIRES(mutex_);
  void join_host(SignalId signal, double time) STOWAGE_REQUIRES(mutex_);
  double now() const STOWAGE_REQUIRES(mutex_);
  Pace pace(LaneRole role) const;
  const Link& link(LaneRole role) const { return role == LaneRole::h2d ? options_.h2d : options_.d2h; }

  const SimulatedOptions options_;
  std::optional<Wire> wire_;  // set if directions slow each other
  const SteadyClock clock_;
  mutable Mutex mutex_;
  Signals signals_;
  Names names_ STOWAGE_GUARDED_BY(mutex_);
  FaultInjector faults_ STOWAGE_GUARDED_BY(mutex_);
  DeviceCounters counters_ STOWAGE_GUARDED_BY(mutex_);
  Memory memory_ STOWAGE_GUARDED_BY(mutex_);
  AccessChecker checker_ STOWAGE_GUARDED_BY(mutex_);
  EventTable events_ STOWAGE_GUARDED_BY(mutex_){signals_};
  std::vector<VectorClock> signal_clocks_ STOWAGE_GUARDED_BY(mutex_);  // by signal
  std::vector<RangeAccess> accesses_ STOWAGE_GUARDED_BY(mutex_);       // accesses of the launch at hand
  std::vector<RangeAccess> undefined_ STOWAGE_GUARDED_BY(mutex_);  // undefined parts of the meeting at hand
  double host_time_ STOWAGE_GUARDED_BY(mutex_) = 0;                // the caller's time, in virtual time
  // The last member, so that its threads end before the members that they use.
  std::vector<std::unique_ptr<ExecutionLane>> lanes_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::simulated
