// A device without lanes, threads or checks: every call takes effect at once, in the calling thread,
// and allocates nothing. What an engine allocates on it is the engine's own doing.
#pragma once

#include <cstring>
#include <new>

#include "stowage/device.h"

namespace stowage::testing {

class ImmediateDevice final : public Device {
 public:
  // Without `runs_work`, launches do nothing: their kernels may allocate.
  explicit ImmediateDevice(bool runs_work = true) : runs_work_(runs_work) {}

  DeviceInfo info() const override { return {"immediate", "simulated"}; }
  MemoryInfo memory_info() const override { return {1_GiB, 1_GiB}; }

  void* allocate(MemoryKind kind, Bytes bytes) override {
    if (kind == MemoryKind::device) ++counters_.device_allocations;
    if (kind == MemoryKind::pinned) ++counters_.pinned_allocations;
    void* const address = ::operator new(bytes, alignment);
    return kind == MemoryKind::device ? address : std::memset(address, 0, bytes);
  }
  void release(MemoryKind, void* address) override { ::operator delete(address, alignment); }

  Bytes granularity() const override { return 4096; }
  void* reserve(Bytes) override { return nullptr; }
  void unreserve(void*) override {}
  void map_pieces(void*, Bytes, Bytes, Bytes) override {}
  void unmap(void*, Bytes, Bytes) override {}

  LaneId create_lane(LaneRole role) override { return static_cast<LaneId>(role); }
  void destroy_lane(LaneId) override {}
  EventId create_event() override { return events_++; }
  void destroy_event(EventId) override {}
  void record(EventId, LaneId) override {}
  void wait(LaneId, EventId) override {}
  bool query(EventId) override { return true; }
  void synchronise(EventId) override {}
  void synchronise_lane(LaneId) override {}
  double elapsed_seconds(EventId, EventId) override { return 1; }

  void copy(LaneId lane, void* to, const void* from, Bytes bytes, std::string_view) override {
    std::memcpy(to, from, bytes);
    (lane == static_cast<LaneId>(LaneRole::h2d) ? counters_.h2d_bytes : counters_.d2h_bytes) += bytes;
  }
  void launch(LaneId, const Launch& launch) override {
    if (runs_work_) launch.function(launch.context);
  }
  void discard(LaneId, void*, Bytes) override {}

  DeviceCounters counters() const override { return counters_; }
  void reset_counters() override { counters_ = {}; }

 private:
  static constexpr std::align_val_t alignment{256};
  const bool runs_work_;
  DeviceCounters counters_;
  EventId events_ = 0;
};

}  // namespace stowage::testing
