// CacheDevice: a card as the caching allocator sees it. Its memory is the driver's virtual memory, and it has
// one lane. All work of the lane has always passed, since every release comes after a wait for the device.
#pragma once

#include <cuda.h>

#include <map>

#include "src/base/mutex.h"
#include "stowage/device.h"

namespace stowage::interpose {

// Calls of the driver that fail throw OutOfMemory or DeviceError. Functions that the allocator does not need
// throw DeviceError.
class CacheDevice : public Device {
 public:
  static constexpr LaneId lane = 0;

  // `total`: bytes of the card that the cache may use.
  CacheDevice(CUdevice device, Bytes total);

  DeviceInfo info() const override { return {"card", "driver"}; }
  MemoryInfo memory_info() const override { return {total_, total_, 0}; }
  void* allocate(MemoryKind kind, Bytes bytes) override;
  void release(MemoryKind kind, void* address) override;
  Bytes granularity() const override { return granularity_; }
  void* reserve(Bytes bytes) override;
  void unreserve(void* address) override;
  void map_pieces(void* range, Bytes offset, Bytes bytes, Bytes piece) override;
  void unmap(void* range, Bytes offset, Bytes bytes) override;
  LaneId create_lane(LaneRole role) override;
  void destroy_lane(LaneId id) override;
  EventId create_event() override { return 0; }
  void destroy_event(EventId event) override { static_cast<void>(event); }
  void record(EventId event, LaneId id) override;
  void wait(LaneId id, EventId event) override;
  bool query(EventId event) override;
  void synchronise(EventId event) override { static_cast<void>(event); }
  void synchronise_lane(LaneId id) override { static_cast<void>(id); }
  double elapsed_seconds(EventId from, EventId to) override;
  void copy(LaneId id, void* to, const void* from, Bytes bytes, std::string_view name) override;
  void launch(LaneId id, const Launch& launch) override;
  void discard(LaneId id, void* address, Bytes bytes) override;
  DeviceCounters counters() const override { return {}; }
  void reset_counters() override {}

 private:
  void map_piece(CUdeviceptr address, Bytes bytes);

  const CUdevice device_;
  const Bytes total_;
  Bytes granularity_ = 0;
  Mutex mutex_;
  std::map<void*, Bytes> reserved_ STOWAGE_GUARDED_BY(mutex_);
};

}  // namespace stowage::interpose
