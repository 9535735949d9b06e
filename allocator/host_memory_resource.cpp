#include "stowage/host_memory_resource.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>

#include "allocator/pinned_pool.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t aligned_anyway = 256;  // alignment that Device::allocate promises

}  // namespace

class HostMemoryResource::Implementation {
 public:
  explicit Implementation(Device& device) : pool_(device) {}

  void* allocate(std::size_t bytes, std::size_t alignment) {
    if (!std::has_single_bit(alignment))
      throw InvalidInput(fmt::format("host memory: alignment {} is no power of two; ask for one", alignment));
    const std::size_t extra = alignment > aligned_anyway ? alignment : 0;
    const std::size_t asked = std::max<std::size_t>(bytes, 1);
    if (asked > std::numeric_limits<std::size_t>::max() - extra)
      throw OutOfMemory(
          fmt::format("host memory: {} bytes aligned to {} asked; ask for less", bytes, alignment), bytes, 0);
    PinnedBuffer buffer = pool_.allocate(asked + extra);
    const auto begin = reinterpret_cast<std::uintptr_t>(buffer.data());
    std::byte* const address = buffer.data() + (align_up(begin, alignment) - begin);
    const MutexLock lock(mutex_);
    buffers_.emplace(address, std::move(buffer));
    return address;
  }

  void deallocate(void* address) {
    PinnedBuffer buffer;  // destroyed after the lock is released; the pool gets the buffer back
    const MutexLock lock(mutex_);
    const auto found = buffers_.find(address);
    if (found == buffers_.end())
      throw InvalidInput(fmt::format(
          "host memory: {} is no address of this resource; give back what it gave, once", address));
    buffer = std::move(found->second);
    buffers_.erase(found);
  }

  void trim() { pool_.trim(); }
  HostMemoryStatistics statistics() const {
    const PinnedPoolStatistics all = pool_.statistics();
    return {all.in_use_bytes, all.cached_bytes, all.peak_bytes, all.allocations, all.reuses};
  }

 private:
  PinnedPool pool_;
  Mutex mutex_;
  std::unordered_map<void*, PinnedBuffer> buffers_ STOWAGE_GUARDED_BY(mutex_);
};

HostMemoryResource::HostMemoryResource(Device& device)
    : implementation_(std::make_unique<Implementation>(device)) {}
HostMemoryResource::~HostMemoryResource() = default;
void HostMemoryResource::trim() { implementation_->trim(); }
HostMemoryStatistics HostMemoryResource::statistics() const { return implementation_->statistics(); }
void* HostMemoryResource::do_allocate(std::size_t bytes, std::size_t alignment) {
  return implementation_->allocate(bytes, alignment);
}
void HostMemoryResource::do_deallocate(void* address, std::size_t, std::size_t) {
  implementation_->deallocate(address);
}

}  // namespace stowage
