#include "src/base/laps.h"
#include "src/device/cuda/cuda_device.h"

namespace stowage::cuda {

void* CudaDevice::allocate(MemoryKind kind, Bytes bytes) {
  const CurrentDevice current = begin_call("allocate");
  Laps laps;
  void* const address = memory_->allocate(kind, bytes);
  const double seconds = laps.lap();
  const MutexLock lock(mutex_);
  if (kind == MemoryKind::device) ++counters_.device_allocations;
  if (kind != MemoryKind::pinned) return address;
  ++counters_.pinned_allocations;
  counters_.pinning_seconds += seconds;
  return address;
}

void CudaDevice::release(MemoryKind kind, void* address) {
  const CurrentDevice current = enter("release");
  memory_->release(kind, address);
}

Bytes CudaDevice::granularity() const { return memory_->granularity(); }

void* CudaDevice::reserve(Bytes bytes) {
  const CurrentDevice current = begin_call("reserve");
  return memory_->reserve(bytes);
}

void CudaDevice::unreserve(void* address) {
  const CurrentDevice current = enter("unreserve");
  memory_->unreserve(address);
}

void CudaDevice::map_pieces(void* range, Bytes offset, Bytes bytes, Bytes piece) {
  const CurrentDevice current = begin_call("map");
  memory_->map(range, offset, bytes, piece);
  const MutexLock lock(mutex_);
  ++counters_.device_allocations;
}

void CudaDevice::unmap(void* range, Bytes offset, Bytes bytes) {
  const CurrentDevice current = enter("unmap");
  memory_->unmap(range, offset, bytes);
}

}  // namespace stowage::cuda
