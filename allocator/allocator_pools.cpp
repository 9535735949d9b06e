// Pools, trimming and the limit of the caching allocator.
#include <fmt/core.h>

#include <algorithm>

#include "allocator/caching_allocator_implementation.h"
#include "stowage/error.h"

namespace stowage {

caching::Pool& CachingAllocator::Implementation::pool_with(PoolId pool, std::string_view call) {
  for (const auto& known : pools_)
    if (known->id == pool) return *known;
  throw InvalidInput(fmt::format("{}: there is no pool {}; pass what create_pool returned", call, pool));
}

std::vector<std::unique_ptr<caching::Pool>> CachingAllocator::Implementation::first_pools() const {
  std::vector<std::unique_ptr<Pool>> pools;
  pools.push_back(std::make_unique<Pool>(default_pool, slices, Interval{0, plan_space().begin}, granule_));
  return pools;
}

Bytes CachingAllocator::Implementation::trim() {
  const MutexLock lock(mutex_);
  return empty_default_pool(~std::uint64_t{0}) * granule_;
}

std::uint64_t CachingAllocator::Implementation::empty_default_pool(std::uint64_t most) {
  std::exception_ptr failure;
  flush_pool(*pools_.front());
  synchronise(failure);
  const std::uint64_t unmapped = memory_.unmap_spare(*pools_.front(), most);
  return unmapped + plan_region_.lend(most - std::min(most, unmapped));  // whole pieces may be more
}

void CachingAllocator::Implementation::set_limit(Bytes limit) {
  const MutexLock lock(mutex_);
  memory_.set_limit(limit);
  if (const std::uint64_t beyond = memory_.beyond_limit()) empty_default_pool(beyond);
}

void CachingAllocator::Implementation::retire_stream(LaneId lane) {
  const MutexLock lock(mutex_);
  Stream* const stream = lane < most_lanes ? streams_[lane].load(std::memory_order_acquire) : nullptr;
  if (stream == nullptr) return;
  std::vector<Pool*> pools;
  {
    const MutexLock stream_lock(stream->mutex);
    for (const auto& cache : stream->caches) {
      if (cache->statistics.allocated > 0)
        throw InvalidInput(
            fmt::format("retire_stream: stream {} still has {} bytes in blocks; release them first", lane,
                        cache->statistics.allocated));
      pools.push_back(&cache->pool);
    }
    // This release passes after all of the lane's work, on blocks of other streams too.
    stream->marks.next_release();
    if (!stream->marks.synchronise()) {
      if (const auto failure = stream->marks.take_failure()) std::rethrow_exception(failure);
      throw DeviceError(
          fmt::format("retire_stream: stream {} could not be waited for; repeat the call", lane),
          "synchronise");
    }
    stream->retired = true;
  }
  for (Pool* const pool : pools) flush_stream(*stream, *pool);
  streams_[lane].store(nullptr, std::memory_order_release);
}

// Returns the slice's part of the second half of the range, which private pools divide equally.
caching::Interval CachingAllocator::Implementation::slice_space(std::size_t slice) const {
  const Bytes half = range_ / 2 / granule_ * granule_;
  const Bytes each = (range_ - half) / slices / granule_ * granule_;
  return {half + slice * each, half + (slice + 1) * each};
}

caching::Interval CachingAllocator::Implementation::plan_space() const {
  const Bytes end = range_ / 2 / granule_ * granule_;
  return {plans_periods_ ? end - slice_space(0).length() : end, end};
}

PoolId CachingAllocator::Implementation::create_pool() {
  const MutexLock lock(mutex_);
  for (std::size_t slice = 0; slice < slices; ++slice) {
    const auto uses = [&](const auto& pool) { return pool->slice == slice; };
    if (std::any_of(pools_.begin(), pools_.end(), uses)) continue;
    pools_.push_back(std::make_unique<Pool>(next_pool_++, slice, slice_space(slice), granule_));
    return pools_.back()->id;
  }
  throw InvalidInput(
      fmt::format("create_pool: there are {} private pools already; destroy one first", slices));
}

void CachingAllocator::Implementation::destroy_pool(PoolId id) {
  const MutexLock lock(mutex_);
  Pool& pool = pool_with(id, "destroy_pool");
  if (!pool.is_private()) throw InvalidInput("destroy_pool: the default pool stays; trim it");
  for (const auto& stream : owned_streams_) {
    const MutexLock stream_lock(stream->mutex);
    const Cache* const cache = stream->find_cache(pool);
    if (cache != nullptr && (cache->statistics.allocated > 0 || stream->current == cache))
      throw InvalidInput(fmt::format(
          "destroy_pool: stream {} has {} bytes in blocks of pool {}, or a PoolScope on it; release "
          "them and end the scope first",
          stream->lane, cache->statistics.allocated, id));
  }
  flush_pool(pool);
  std::exception_ptr failure;
  synchronise(failure);
  memory_.unmap_spare(pool, pool.reserved);
  if (pool.reserved > 0) {
    if (failure != nullptr) std::rethrow_exception(failure);
    throw DeviceError(
        fmt::format("destroy_pool: {} bytes of pool {} are in use by the device or were not taken back; "
                    "end captures, and repeat the call",
                    pool.reserved * granule_, id),
        "unmap");
  }
  for (const auto& stream : owned_streams_) {
    const MutexLock stream_lock(stream->mutex);
    stream->drop_cache(pool);
  }
  std::erase_if(pools_, [&](const auto& known) { return known.get() == &pool; });
}

PoolId CachingAllocator::Implementation::route(LaneId lane, PoolId id) {
  Stream& stream = stream_of(lane);
  const MutexLock lock(mutex_);
  Pool& pool = pool_with(id, "PoolScope");
  const MutexLock stream_lock(stream.mutex);
  const PoolId before = stream.current->pool.id;
  stream.current = &stream.cache_for(pool);
  return before;
}

void CachingAllocator::Implementation::end_route(LaneId lane, PoolId before) {
  const MutexLock lock(mutex_);
  Stream* const stream = lane < most_lanes ? streams_[lane].load(std::memory_order_acquire) : nullptr;
  if (stream == nullptr) return;
  const MutexLock stream_lock(stream->mutex);
  Cache* target = stream->find_cache(*pools_.front());  // every stream has a cache of this pool
  for (const auto& pool : pools_)
    if (Cache* const cache = pool->id == before ? stream->find_cache(*pool) : nullptr) target = cache;
  stream->current = target;
}

}  // namespace stowage
