// Statistics of the caching allocator, and the account that an out-of-memory error gives.
#include <fmt/core.h>

#include <algorithm>

#include "allocator/caching_allocator_implementation.h"

namespace stowage {

PoolStatistics CachingAllocator::Implementation::pool_statistics(
    const Pool& pool, std::vector<StreamStatistics>& streams,
    bool streams_held) STOWAGE_NO_THREAD_SAFETY_ANALYSIS {
  PoolStatistics sum;
  sum.pool = pool.id;
  sum.peak_allocated = pool.peak_allocated;
  for (const auto& stream : owned_streams_) {
    std::unique_lock<Mutex> lock(stream->mutex, std::defer_lock);
    if (!streams_held) lock.lock();
    const Cache* const cache = stream->find_cache(pool);
    if (cache == nullptr) continue;
    const StreamStatistics& one = cache->statistics;
    sum.allocated += one.allocated;
    sum.requested += one.requested;
    sum.cached += one.cached;
    sum.peak_allocated = std::max(sum.peak_allocated, one.peak_allocated);
    sum.allocations += one.allocations;
    sum.hits += one.hits;
    sum.waits += one.waits;
    streams.push_back(one);
  }
  sum.peak_allocated = std::max(sum.peak_allocated, sum.allocated);
  sum.reserved = pool.reserved * granule_;
  sum.peak_reserved = pool.peak_reserved * granule_;
  sum.retries = pool.retries;
  sum.largest_free = pool.heap.largest_mapped_gap();
  const Bytes idle = pool.is_private() ? 0 : plan_region_.mapped_bytes() - plan_region_.taken_bytes();
  const Bytes free = sum.reserved - sum.allocated - idle;
  sum.fragmentation = free == 0 ? 0 : 1 - static_cast<double>(sum.largest_free) / static_cast<double>(free);
  return sum;
}

// Called for a request that no cache served: updates the pool's peak of allocated bytes.
void CachingAllocator::Implementation::note_peaks(Pool& pool) {
  pool.peak_allocated = std::max(pool.peak_allocated, allocated_in(pool));
}

Bytes CachingAllocator::Implementation::allocated_in(const Pool& pool) {
  Bytes allocated = 0;
  for (const auto& stream : owned_streams_) {
    const MutexLock lock(stream->mutex);
    if (const Cache* const cache = stream->find_cache(pool)) allocated += cache->statistics.allocated;
  }
  return allocated;
}

AllocatorStatistics CachingAllocator::Implementation::statistics() {
  const MutexLock lock(mutex_);
  return statistics_locked();
}

AllocatorStatistics CachingAllocator::Implementation::statistics_locked(bool streams_held) {
  AllocatorStatistics all;
  all.limit = memory_.limit();
  all.reserved = memory_.mapped() * granule_;
  all.peak_reserved = memory_.peak_mapped() * granule_;
  all.maps = memory_.counters().maps;
  all.unmapped_granules = memory_.counters().unmaps;
  all.out_of_memory = failed_requests_;
  for (const auto& pool : pools_) all.pools.push_back(pool_statistics(*pool, all.streams, streams_held));
  all.planned = plan_server_.statistics();
  all.planned.bytes = plan_server_.bytes();
  all.planned.reserved = plan_region_.mapped_bytes();
  all.planned.allocated = plan_region_.taken_bytes();
  return all;
}

void CachingAllocator::Implementation::reset_peaks() {
  const MutexLock lock(mutex_);
  memory_.reset_peak();
  for (const auto& stream : owned_streams_) {
    const MutexLock stream_lock(stream->mutex);
    for (const auto& cache : stream->caches) cache->statistics.peak_allocated = cache->statistics.allocated;
  }
  for (const auto& pool : pools_) {
    pool->peak_reserved = pool->reserved;
    pool->peak_allocated = 0;
    note_peaks(*pool);
  }
}

std::string CachingAllocator::Implementation::account() {
  const MutexLock lock(mutex_);
  return account_locked();
}

std::string CachingAllocator::Implementation::account_locked() {
  const AllocatorStatistics all = statistics_locked();
  std::string text =
      fmt::format("{} bytes reserved of {}:", all.reserved,
                  all.limit == unlimited ? "no limit" : fmt::format("a limit of {}", all.limit));
  for (const PoolStatistics& pool : all.pools) {
    text +=
        fmt::format(" pool {}: {} reserved, {} allocated ({} as asked), {} in caches, largest free {}",
                    pool.pool, pool.reserved, pool.allocated, pool.requested, pool.cached, pool.largest_free);
    for (const StreamStatistics& stream : all.streams)
      if (stream.pool == pool.pool && stream.allocated + stream.cached > 0)
        text += fmt::format("; stream {}: {} allocated, {} in its cache", stream.stream, stream.allocated,
                            stream.cached);
    text += ".";
  }
  if (plans_periods_)
    text += fmt::format(" Of pool 0, {} are reserved for plans, {} of these allocated.", all.planned.reserved,
                        all.planned.allocated);
  return text;
}

}  // namespace stowage
