// DeviceAllocator: one device of the C ABI: the device, its program's streams as lanes, the caching allocator
// and its private pools. Thread-safe. Functions throw as those of CachingAllocator do; `stream` is a native
// handle.
#pragma once

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

  void* allocate(Bytes bytes, void* stream);
  void release(void* address, void* stream);
  void record_stream(void* address, void* stream) { allocator_.record_stream(address, lanes_.lane(stream)); }
  bool owns(const void* address) const { return allocator_.owns(address); }
  void forget_stream(void* stream);
  void trim();
  Bytes total_memory() const { return device_->memory_info().total; }
  DeviceSnapshot snapshot(int ordinal) const;

  CachingAllocator& allocator() { return allocator_; }
  PoolRoutes& routes() { return routes_; }

 private:
  std::unique_ptr<Device> device_;
  StreamLanes lanes_;
  CachingAllocator allocator_;
  PoolRoutes routes_;
};

}  // namespace stowage::c_api
