// How a request is served that its stream's cache cannot serve: rung by rung, with a search after each.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "allocator/caching_allocator_implementation.h"
#include "stowage/error.h"

namespace stowage {

using caching::EventKind;
using caching::PoolHeap;

void* CachingAllocator::Implementation::allocate_slowly(Bytes bytes, Bytes asked, Stream& stream) {
  OutOfMemoryNotice notice;
  notice.requested = asked;
  notice.stream = stream.lane;
  std::exception_ptr failure;
  do {
    failure = nullptr;
    const MutexLock lock(mutex_);
    Request request{bytes, asked, stream, pool_of(stream), failure};
    if (Block* const block = climb(request)) return address_of(*block);
    ++request.pool.retries;
    notice.pool = request.pool.id;
    notice.account = account_locked();
  } while (observers_.ask(notice) && ++notice.times_asked < most_questions);
  fail(notice, failure);
}

caching::Pool& CachingAllocator::Implementation::pool_of(Stream& stream) {
  const MutexLock lock(stream.mutex);
  return stream.current->pool;
}

caching::Block* CachingAllocator::Implementation::climb(Request& request) {
  // Bytes of granules in use cost nothing. Before unused granules are taken, the stream's cached blocks
  // return to the heap and join their free neighbours: a block placed between cached ones would keep them
  // apart.
  if (const auto place = find(request, Need::nothing, PoolHeap::quick); place && place->granules.empty())
    return occupy(request, *place);
  flush_stream(request.stream, request.pool);
  if (Block* const block = take_ready(request)) return block;
  flush_pool(request.pool);
  poll(request.failure);
  if (owned_streams_.size() > 1) demands_.fetch_add(1, std::memory_order_relaxed);
  if (Block* const block = take_waiting(request, PoolHeap::quick)) return block;
  if (Block* const block = take_mapping(request, PoolHeap::quick)) return block;
  if (Block* const block = take_waiting(request, PoolHeap::all)) return block;
  flush_pool(*pools_.front());
  synchronise(request.failure);
  ++request.pool.retries;
  if (Block* const block = take_waiting(request, PoolHeap::quick)) return block;
  return take_mapping(request, PoolHeap::all);
}

std::optional<caching::Place> CachingAllocator::Implementation::find(const Request& request, Need most,
                                                                     std::size_t breadth, bool may_wait) {
  // The heap only compares the stream's clock with those of tags.
  return request.pool.heap.find(request.bytes, request.stream.clock, most, breadth, may_wait);
}

caching::Block* CachingAllocator::Implementation::take_ready(Request& request) {
  const auto place = find(request, Need::nothing, PoolHeap::quick);
  return place ? occupy(request, *place) : nullptr;
}

caching::Block* CachingAllocator::Implementation::take_waiting(Request& request, std::size_t breadth) {
  const auto place = find(request, Need::waits, breadth);
  return place && insert_waits(request, place->waits) ? occupy(request, *place) : nullptr;
}

caching::Block* CachingAllocator::Implementation::take_mapping(Request& request, std::size_t breadth) {
  // The second attempt avoids bytes that cannot be waited for: a stream is being captured, or a call failed.
  for (const bool may_wait : {true, false}) {
    const auto place = find(request, Need::memory, breadth, may_wait);
    if (place && insert_waits(request, place->waits) && obtain(request, *place))
      return occupy(request, *place);
  }
  return nullptr;
}

caching::Block* CachingAllocator::Implementation::occupy(Request& request, const Place& place) {
  request.pool.heap.take(place);
  Block& block = hand_out_new(request, place.bytes);
  note_peaks(request.pool);
  return &block;
}

caching::Block& CachingAllocator::Implementation::hand_out_new(Request& request, Interval at) {
  Block& block = blocks_.make();
  block.at = at;
  table_.at(at.begin) = &block;
  const MutexLock lock(request.stream.mutex);
  block.cache = &request.stream.cache_for(request.pool);
  hand_out(*block.cache, block, request.asked);
  return block;
}

bool CachingAllocator::Implementation::insert_waits(Request& request, const caching::Tags& tags) {
  if (tags.empty()) return true;
  {
    const MutexLock lock(request.stream.mutex);
    if (request.stream.is_captured()) return false;
  }
  for (const caching::Tag& tag : tags) {
    Stream& other = *streams_[tag.clock->lane].load(std::memory_order_acquire);
    const MutexLock lock(other.mutex);
    if (other.is_captured() || !other.marks.hold(request.stream.lane, tag.count)) {
      if (auto failure = other.marks.take_failure()) request.failure = std::move(failure);
      return false;
    }
  }
  const MutexLock lock(request.stream.mutex);
  request.stream.cache_for(request.pool).statistics.waits += tags.size();
  history_.add({EventKind::wait, 0, request.bytes, request.stream.lane, request.pool.id});
  return true;
}

// Maps the place's granules: first granules that nobody uses any more, the plans' among them, then new ones.
bool CachingAllocator::Implementation::obtain(Request& request, const Place& place) {
  if (place.unmapped == 0) return true;
  Pool& giver = *pools_.front();
  const Interval kept = &giver == &request.pool ? place.granules : Interval{};
  const std::uint64_t wanted = place.unmapped + memory_.beyond_limit();
  const std::uint64_t spare = length_of(giver.heap.recyclable(memory_.pieces(), wanted, kept));
  const std::uint64_t lent = plan_region_.lendable(wanted - std::min(wanted, spare));
  if (spare + lent + memory_.room() < wanted) return false;
  memory_.unmap_spare(giver, spare, kept);
  plan_region_.lend(lent);
  while (memory_.room() >= place.unmapped) {
    if (map(request, place)) return true;
    if (request.failure != nullptr) return false;
    if (memory_.unmap_spare(giver, place.unmapped, kept) + plan_region_.lend(place.unmapped) == 0)
      return false;
  }
  return false;
}

bool CachingAllocator::Implementation::map(Request& request, const Place& place) {
  std::vector<Interval> missing;
  request.pool.heap.spare().for_each_missing(place.granules, [&](Interval run) { missing.push_back(run); });
  return memory_.map(request.pool.heap, request.pool, missing, request.failure);
}

void CachingAllocator::Implementation::flush(Cache& cache) {
  Block* list = nullptr;
  {
    const MutexLock lock(cache.stream.mutex);
    list = cache.bins.take_all();
    cache.statistics.cached = 0;
  }
  while (list != nullptr) {
    Block& block = *list;
    list = block.next;
    cache.pool.heap.give(block.at, {caching::Tag{&cache.stream.clock, block.count}});
    table_.at(block.at.begin) = nullptr;
    blocks_.recycle(block);
  }
}

void CachingAllocator::Implementation::flush_stream(Stream& stream, Pool& pool) {
  Cache* cache = nullptr;
  {
    const MutexLock lock(stream.mutex);
    cache = stream.find_cache(pool);
  }
  if (cache != nullptr) flush(*cache);
}

void CachingAllocator::Implementation::flush_pool(Pool& pool) {
  for (const auto& stream : owned_streams_) flush_stream(*stream, pool);
}

void CachingAllocator::Implementation::poll(std::exception_ptr& failure) {
  for (const auto& stream : owned_streams_) {
    const MutexLock lock(stream->mutex);
    if (stream->retired || stream->is_captured()) continue;
    stream->marks.mark();
    stream->marks.poll();
    if (auto failed = stream->marks.take_failure()) failure = std::move(failed);
  }
}

void CachingAllocator::Implementation::synchronise(std::exception_ptr& failure) {
  for (const auto& stream : owned_streams_) {
    const MutexLock lock(stream->mutex);
    if (stream->retired || stream->is_captured()) continue;
    if (!stream->marks.synchronise())
      if (auto failed = stream->marks.take_failure()) failure = std::move(failed);
  }
  history_.add({EventKind::synchronise, 0, 0, 0, 0});
}

void CachingAllocator::Implementation::fail(const OutOfMemoryNotice& notice,
                                            const std::exception_ptr& failure) {
  Bytes free = 0;
  {
    const MutexLock lock(mutex_);
    ++failed_requests_;
    free = memory_.room() * granule_;
  }
  if (failure == nullptr) free = std::min(free, device_.memory_info().free);
  history_.add({EventKind::out_of_memory, 0, notice.requested, notice.stream, notice.pool, free});
  if (failure != nullptr) std::rethrow_exception(failure);
  throw OutOfMemory(
      fmt::format("allocate: {} bytes ({}) asked on stream {} of pool {}; {} Release some of it, ask for "
                  "less, or raise the limit",
                  notice.requested, format_bytes(notice.requested), notice.stream, notice.pool,
                  notice.account),
      notice.requested, free);
}

}  // namespace stowage
