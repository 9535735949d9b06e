// PinnedPool: page-locked host memory in exact sizes, kept and reused by exact size.
//
// Page-locking is slow and rounding a bucket up to a power of two would waste up to half of it, so a request
// takes its exact size, and a returned buffer waits for a request of that size. Thread-safe. The device must
// outlive the pool, the pool its buffers; a buffer may go back while transfers on it still run if whoever
// takes it next is ordered after them.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "stowage/device.h"

namespace stowage {

struct PinnedPoolStatistics {
  Bytes in_use_bytes = 0;
  Bytes cached_bytes = 0;         // buffers held for reuse
  Bytes peak_bytes = 0;           // largest sum of in_use_bytes and cached_bytes
  std::uint64_t in_use = 0;       // number of buffers
  std::uint64_t cached = 0;       // number of buffers
  std::uint64_t allocations = 0;  // buffers taken from the device
  std::uint64_t reuses = 0;       // buffers taken from the cache
};

class PinnedBuffer;

class PinnedPool {
 public:
  explicit PinnedPool(Device& device) : device_(device) {}
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // bytes > 0. When the device has no more, the cache is given back and the device asked once again;
  // then OutOfMemory with the device's account.
  PinnedBuffer allocate(Bytes bytes);
  // Gives cached buffers back to the device. REQUIRES: work that touched them was synchronised.
  void trim();
  PinnedPoolStatistics statistics() const;

 private:
  friend class PinnedBuffer;
  DeviceMemory take_cached(Bytes bytes) STOWAGE_REQUIRES(mutex_);
  DeviceMemory take_new(Bytes bytes) STOWAGE_REQUIRES(mutex_);
  DeviceMemory allocate_new(Bytes bytes) STOWAGE_REQUIRES(mutex_);
  void drop_cache() STOWAGE_REQUIRES(mutex_);
  void put_back(DeviceMemory memory) noexcept;

  // Buffers of one size. `cached` has room for every one, so that putting back cannot fail.
  struct SizeClass {
    std::vector<DeviceMemory> cached;
    std::size_t buffers = 0;  // number of buffers, cached and in use
  };
  Device& device_;
  mutable Mutex mutex_;
  std::map<Bytes, SizeClass> classes_ STOWAGE_GUARDED_BY(mutex_);  // buffers by exact size
  PinnedPoolStatistics statistics_ STOWAGE_GUARDED_BY(mutex_);
};

// Move-only owner of one buffer; gives it back to the pool when it dies.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), memory_(std::move(other.memory_)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    PinnedBuffer moved(std::move(other));
    std::swap(pool_, moved.pool_);
    std::swap(memory_, moved.memory_);
    return *this;
  }
  ~PinnedBuffer() {
    if (pool_ != nullptr) pool_->put_back(std::move(memory_));
  }

  std::byte* data() const { return memory_.data(); }
  Bytes bytes() const { return memory_.bytes(); }

 private:
  friend class PinnedPool;
  PinnedBuffer(PinnedPool& pool, DeviceMemory memory) : pool_(&pool), memory_(std::move(memory)) {}

  PinnedPool* pool_ = nullptr;
  DeviceMemory memory_;
};

}  // namespace stowage
