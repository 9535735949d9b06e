// DeviceAllocator: one device of the C ABI, its program's streams as lanes, the caching allocator and its
// private pools. Thread-safe. Functions throw as CachingAllocator's do; `stream` is a native handle.
#pragma once

#include <cstdint>
#include <memory>

#include "allocator/c_api/pool_routes.h"
#include "stowage/allocator_snapshot.h"
#include "stowage/caching_allocator.h"
#include "stowage/stream_lanes.h"

namespace stowage::c_api {

class DeviceAllocator {
 public:
  DeviceAllocator(std::unique_ptr<Device> device, const CachingAllocatorOptions& options)
      : device_(std::move(device)), lanes_(*device_), allocator_(*device_, options), routes_(allocator_) {}

  void* allocate(Bytes bytes, void* stream) {
    const LaneId lane = lanes_.lane(stream);
    routes_.expect_pool(stream);
    return routes_.with_route(stream, lane, [&] { return allocator_.allocate_raw(bytes, lane); });
  }
  void release(void* address, void* stream) {
    const LaneId lane = lanes_.lane(stream);
    routes_.with_route(stream, lane, [&] { allocator_.release_raw(address, lane); });
  }
  void record_stream(void* address, void* stream) { allocator_.record_stream(address, lanes_.lane(stream)); }
  bool owns(const void* address) const { return allocator_.owns(address); }
  void forget_stream(void* stream) {
    LaneId lane = 0;
    if (!lanes_.find(stream, lane)) return;
    allocator_.retire_stream(lane);
    lanes_.forget(stream);
  }
  void trim() {
    routes_.sweep();
    allocator_.trim();
  }
  Bytes total_memory() const { return device_->memory_info().total; }
  DeviceSnapshot snapshot(int ordinal) const {
    return {ordinal, allocator_.snapshot(), [this](LaneId lane) {
              return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(lanes_.stream(lane)));
            }};
  }

  CachingAllocator& allocator() { return allocator_; }
  PoolRoutes& routes() { return routes_; }

 private:
  std::unique_ptr<Device> device_;
  StreamLanes lanes_;
  CachingAllocator allocator_;
  PoolRoutes routes_;
};

}  // namespace stowage::c_api
