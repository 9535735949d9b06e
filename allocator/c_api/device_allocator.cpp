#include "allocator/c_api/device_allocator.h"

namespace stowage::c_api {

void* DeviceAllocator::allocate(Bytes bytes, void* stream) {
  const LaneId lane = lanes_.lane(stream);
  routes_.expect_pool(stream);
  return routes_.with_route(stream, lane, [&] { return allocator_.allocate_raw(bytes, lane); });
}

void DeviceAllocator::release(void* address, void* stream) {
  const LaneId lane = lanes_.lane(stream);
  routes_.with_route(stream, lane, [&] { allocator_.release_raw(address, lane); });
}

void DeviceAllocator::forget_stream(void* stream) {
  LaneId lane = 0;
  if (!lanes_.find(stream, lane)) return;
  allocator_.retire_stream(lane);
  lanes_.forget(stream);
}

void DeviceAllocator::trim() {
  routes_.sweep();
  allocator_.trim();
}

DeviceSnapshot DeviceAllocator::snapshot(int ordinal) const {
  return {ordinal, allocator_.snapshot(), [this](LaneId lane) {
            return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(lanes_.stream(lane)));
          }};
}

}  // namespace stowage::c_api
