#include "allocator/pinned_pool.h"

#include <algorithm>

#include "stowage/error.h"

namespace stowage {

PinnedBuffer PinnedPool::allocate(Bytes bytes) {
  const MutexLock lock(mutex_);
  DeviceMemory memory = take_cached(bytes);
  if (memory.data() == nullptr) memory = take_new(bytes);
  ++statistics_.in_use;
  statistics_.in_use_bytes += bytes;
  statistics_.peak_bytes =
      std::max(statistics_.peak_bytes, statistics_.in_use_bytes + statistics_.cached_bytes);
  return {*this, std::move(memory)};
}

DeviceMemory PinnedPool::take_cached(Bytes bytes) {
  const auto found = classes_.find(bytes);
  if (found == classes_.end() || found->second.cached.empty()) return {};
  DeviceMemory memory = std::move(found->second.cached.back());
  found->second.cached.pop_back();
  ++statistics_.reuses;
  --statistics_.cached;
  statistics_.cached_bytes -= bytes;
  return memory;
}

DeviceMemory PinnedPool::take_new(Bytes bytes) {
  try {
    return allocate_new(bytes);
  } catch (const OutOfMemory&) {
    if (statistics_.cached == 0) throw;
  }
  drop_cache();
  return allocate_new(bytes);
}

DeviceMemory PinnedPool::allocate_new(Bytes bytes) {
  SizeClass& of_size = classes_[bytes];
  of_size.cached.reserve(of_size.buffers + 1);
  DeviceMemory memory(device_, MemoryKind::pinned, bytes);
  ++of_size.buffers;
  ++statistics_.allocations;
  return memory;
}

void PinnedPool::trim() {
  const MutexLock lock(mutex_);
  drop_cache();
}

void PinnedPool::drop_cache() {
  for (auto& [bytes, of_size] : classes_) {
    of_size.buffers -= of_size.cached.size();
    of_size.cached.clear();
  }
  statistics_.cached = 0;
  statistics_.cached_bytes = 0;
}

PinnedPoolStatistics PinnedPool::statistics() const {
  const MutexLock lock(mutex_);
  return statistics_;
}

void PinnedPool::put_back(DeviceMemory memory) noexcept {
  const MutexLock lock(mutex_);
  const Bytes bytes = memory.bytes();
  --statistics_.in_use;
  statistics_.in_use_bytes -= bytes;
  ++statistics_.cached;
  statistics_.cached_bytes += bytes;
  classes_.find(bytes)->second.cached.push_back(std::move(memory));
}

}  // namespace stowage
