// Stream: what the allocator keeps for each lane, under that stream's own lock: its marks, and for each pool
// a cache of blocks that it released.
//
// Lock order: the allocator's mutex, then one stream's.
#pragma once

#include <memory>
#include <vector>

#include "allocator/lane_marks.h"
#include "allocator/pool_heap.h"
#include "allocator/size_bins.h"
#include "src/base/mutex.h"
#include "stowage/caching_allocator.h"

namespace stowage::caching {

// REQUIRES: the allocator's mutex.
struct Pool {
  Pool(PoolId number, std::size_t place, Interval space, Bytes granule)
      : id(number), slice(place), heap(space, granule) {}
  PoolId id;
  std::size_t slice;  // number of the pool's slice of the address space for private pools
  PoolHeap heap;
  std::uint64_t reserved = 0;  // mapped memory, in granules
  std::uint64_t peak_reserved = 0;
  Bytes peak_allocated = 0;  // largest of the values seen, not of all values that there were
  std::uint64_t retries = 0;
  bool is_private() const { return id != default_pool; }
};

class Stream;

// REQUIRES: the mutex of its stream.
struct alignas(128) Cache {
  Cache(Stream& owner, Pool& of) : stream(owner), pool(of) {}
  Stream& stream;
  Pool& pool;
  SizeBins bins;
  StreamStatistics statistics;
};

// Streams and caches do not share cache lines.
class alignas(128) Stream {
 public:
  // Once another stream has looked for memory since the last mark, the next mark is recorded after this many
  // released bytes. Other streams then need not wait for later work, and no mark is made without need.
  static constexpr Bytes bytes_per_mark = 1_MiB;

  Stream(Device& device, LaneId number) : lane(number), marks(device, clock) { clock.lane = number; }

  Cache& cache_for(Pool& pool) STOWAGE_REQUIRES(mutex) {
    if (Cache* const known = find_cache(pool)) return *known;
    caches.push_back(std::make_unique<Cache>(*this, pool));
    caches.back()->statistics.stream = lane;
    caches.back()->statistics.pool = pool.id;
    return *caches.back();
  }
  // Returns null if the stream never used the pool.
  Cache* find_cache(const Pool& pool) STOWAGE_REQUIRES(mutex) {
    for (const auto& cache : caches)
      if (&cache->pool == &pool) return cache.get();
    return nullptr;
  }
  void drop_cache(const Pool& pool) STOWAGE_REQUIRES(mutex) {
    std::erase_if(caches, [&](const auto& cache) { return &cache->pool == &pool; });
  }

  // Returns true if the lane is being captured, or may soon be because its requests go to a private pool. No
  // event is then recorded or queried on it, and it waits for no other lane.
  bool is_captured() STOWAGE_REQUIRES(mutex) {
    return (current != nullptr && current->pool.is_private()) || marks.is_captured();
  }

  const LaneId lane;
  LaneClock clock;
  Mutex mutex;
  // The lane may be gone, and no work of the stream is pending.
  bool retired STOWAGE_GUARDED_BY(mutex) = false;
  LaneMarks marks STOWAGE_GUARDED_BY(mutex);
  std::vector<std::unique_ptr<Cache>> caches STOWAGE_GUARDED_BY(mutex);
  Cache* current STOWAGE_GUARDED_BY(mutex) = nullptr;  // the cache that serves requests
  Bytes unmarked_bytes STOWAGE_GUARDED_BY(mutex) = 0;
  // Value of the allocator's demands_ at the latest mark.
  std::uint64_t demands STOWAGE_GUARDED_BY(mutex) = 0;
};

}  // namespace stowage::caching
