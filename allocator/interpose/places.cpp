#include "allocator/interpose/places.h"

namespace stowage::interpose {

void Places::pool_created(CUmemoryPool pool, PoolPlace place) {
  const MutexLock lock(mutex_);
  pools_[pool] = place;
}

void Places::pool_destroyed(CUmemoryPool pool) {
  const MutexLock lock(mutex_);
  pools_.erase(pool);
}

std::optional<PoolPlace> Places::of(CUmemoryPool pool) {
  const MutexLock lock(mutex_);
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return std::nullopt;
  return found->second;
}

void Places::primary_context_is(CUdevice device, std::uint64_t context) {
  const MutexLock lock(mutex_);
  primary_contexts_[device] = context;
}

std::uint64_t Places::primary_context(CUdevice device) {
  const MutexLock lock(mutex_);
  const auto found = primary_contexts_.find(device);
  return found == primary_contexts_.end() ? 0 : found->second;
}

Places& places() {
  static Places& only = *new Places;  // outlives every thread
  return only;
}

}  // namespace stowage::interpose
