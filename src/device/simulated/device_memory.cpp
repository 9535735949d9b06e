#include "src/base/laps.h"
#include "src/device/simulated/device_implementation.h"

namespace stowage::simulated {

void* Implementation::allocate(MemoryKind kind, Bytes bytes) {
  const MutexLock lock(mutex_);
  begin_allocating_call("allocate", kind, bytes);
  Laps laps;
  Allocation& allocation = memory_.allocate(kind, bytes);
  if (kind == MemoryKind::pinned) counters_.pinning_seconds += laps.lap();
  allocation.range = checker_.add_range(kind, bytes, allocation.number);
  if (kind == MemoryKind::device) ++counters_.device_allocations;
  if (kind == MemoryKind::pinned) ++counters_.pinned_allocations;
  return allocation.base;
}

void Implementation::release(MemoryKind kind, void* address) {
  const MutexLock lock(mutex_);
  forget_allocation(memory_.plain_at(kind, address, "release"), "release");
}

void* Implementation::reserve(Bytes bytes) {
  const MutexLock lock(mutex_);
  begin_call("reserve");
  Allocation& range = memory_.reserve(bytes);
  range.range = checker_.add_range(MemoryKind::device, bytes, range.number);
  return range.base;
}

void Implementation::unreserve(void* address) {
  const MutexLock lock(mutex_);
  forget_allocation(memory_.reserved_at(address, "unreserve"), "unreserve");
}

void Implementation::forget_allocation(Allocation& allocation, std::string_view call) {
  checker_.expect_finished(allocation.range, 0, allocation.bytes, call);
  checker_.remove_range(allocation.range);
  memory_.release(allocation);
}

void Implementation::map_pieces(void* range, Bytes offset, Bytes bytes, Bytes piece) {
  const MutexLock lock(mutex_);
  begin_allocating_call("map", MemoryKind::device, bytes);
  Allocation& reserved = memory_.reserved_at(range, "map");
  memory_.map(reserved, offset, bytes, piece);
  checker_.forget(reserved.range, offset, offset + bytes);
  ++counters_.device_allocations;
}

void Implementation::unmap(void* range, Bytes offset, Bytes bytes) {
  const MutexLock lock(mutex_);
  Allocation& reserved = memory_.reserved_at(range, "unmap");
  memory_.expect_granules(reserved, offset, bytes, true, "unmap");
  checker_.expect_finished(reserved.range, offset, offset + bytes, "unmap");
  memory_.unmap(reserved, offset, bytes);
}

}  // namespace stowage::simulated
