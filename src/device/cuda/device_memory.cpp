#include "src/device/cuda/cuda_device.h"

namespace stowage::cuda {

void* CudaDevice::allocate(MemoryKind kind, Bytes bytes) {
  const CurrentDevice current = begin_call("allocate");
  const MutexLock lock(mutex_);
  const Allocation& allocation = memory_->allocate(kind, bytes);
  ++(kind == MemoryKind::device ? counters_.device_allocations : counters_.pinned_allocations);
  return allocation.base;
}

void CudaDevice::release(MemoryKind kind, void* address) {
  const CurrentDevice current = enter("release");
  const MutexLock lock(mutex_);
  memory_->release(kind, address);
}

Bytes CudaDevice::granularity() const {
  const MutexLock lock(mutex_);
  return memory_->granularity();
}

void* CudaDevice::reserve(Bytes bytes) {
  const CurrentDevice current = begin_call("reserve");
  const MutexLock lock(mutex_);
  return memory_->reserve(bytes).base;
}

void CudaDevice::unreserve(void* address) {
  const CurrentDevice current = enter("unreserve");
  const MutexLock lock(mutex_);
  memory_->unreserve(address);
}

void CudaDevice::map(void* range, Bytes offset, Bytes bytes) {
  const CurrentDevice current = begin_call("map");
  const MutexLock lock(mutex_);
  memory_->map(range, offset, bytes);
  ++counters_.device_allocations;
}

void CudaDevice::unmap(void* range, Bytes offset, Bytes bytes) {
  const CurrentDevice current = enter("unmap");
  const MutexLock lock(mutex_);
  memory_->unmap(range, offset, bytes);
}

}  // namespace stowage::cuda
