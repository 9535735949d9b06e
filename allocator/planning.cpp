// What a plan serves of the caching allocator's requests, and the memory behind it.
//
// All of it under the allocator's mutex: the order of requests is what a plan goes by.
#include <algorithm>
#include <utility>

#include "allocator/caching_allocator_implementation.h"
#include "stowage/error.h"

namespace stowage {

void* CachingAllocator::Implementation::allocate_planned(Bytes bytes, Bytes asked, Stream& stream) {
  PlannedPool::Ticket ticket = Block::no_ticket;
  {
    const MutexLock lock(mutex_);
    Pool& pool = pool_of(stream);
    if (!pool.is_private()) {
      const bool was_planned = planned_.is_planned();
      const PlannedPool::Block found = planned_.allocate(bytes, stream.lane);
      ticket = found.ticket;
      look_at_plan(was_planned);
      std::exception_ptr failure;
      Request request{bytes, asked, stream, pool, failure};
      if (found.offset) {
        if (Block* const block = take_planned(request, *found.offset)) {
          block->ticket = ticket;
          return address_of(*block);
        }
        planned_.decline(ticket);
      }
    }
  }
  try {
    void* const address = allocate_cached(bytes, asked, stream);
    block_at(address, "allocate").ticket = ticket;
    return address;
  } catch (...) {
    const MutexLock lock(mutex_);
    if (ticket != Block::no_ticket) planned_.cancel(ticket);
    throw;
  }
}

bool CachingAllocator::Implementation::release_planned(Block& block, Stream* target) {
  const MutexLock lock(mutex_);
  {
    const MutexLock stream_lock(block.cache->stream.mutex);
    if (!block.live) return false;  // which the caller says
  }
  const PlannedPool::Ticket ticket = std::exchange(block.ticket, Block::no_ticket);
  if (ticket != Block::no_ticket) planned_.free(ticket);
  if (!block.is_planned) return false;
  caching::Tags tags;
  if (target == nullptr) {
    Stream& own = block.cache->stream;
    tags = take_back_everywhere(block);
    const MutexLock own_lock(own.mutex);
    mark_if_due(own, block.at.length());
  } else {
    {
      const MutexLock own_lock(block.cache->stream.mutex);
      take_back(*block.cache, block, "release");
    }
    const MutexLock target_lock(target->mutex);
    tags = {target->marks.next_release()};
    mark_if_due(*target, block.at.length());
  }
  give(block, std::move(tags));
  return true;
}

// Null: where waits cannot be inserted, or there is no memory for it without waiting for work.
caching::Block* CachingAllocator::Implementation::take_planned(Request& request, Bytes offset) {
  const Interval at = region_.at(offset, request.bytes);
  if (!insert_waits(request, region_.waits(at, request.stream.clock)) || !back(request, at)) return nullptr;
  region_.take(at);
  Block& block = hand_out_new(request, at);
  block.is_planned = true;
  return &block;
}

// Moving comes before growing, and the plan's own idle granules last: it will want them back. But no more are
// its own than it needs at once.
bool CachingAllocator::Implementation::back(Request& request, Interval bytes) {
  const std::vector<Interval> missing = region_.missing(bytes);
  if (missing.empty()) return true;
  std::uint64_t count = 0;
  for (const Interval& run : missing) count += run.length();
  poll(request.failure);
  if (room() < count) flush_pool(request.pool);
  const std::uint64_t moved = unmap_of_plan(std::min(count, beyond_plan(count)), bytes);
  unmap_spare(request.pool, count - std::min(count, moved), {});  // whole pieces may be more
  if (room() < count) unmap_of_plan(count - room(), bytes);
  bool short_of_memory = true;
  while (short_of_memory && room() >= count) {
    if (map_for_plan(request, missing, short_of_memory)) return true;
    if (unmap_spare(request.pool, count, {}) == 0) return false;
  }
  return false;
}

// Granules by which the plan's mapped ones and `more` are above those that it needs at once.
std::uint64_t CachingAllocator::Implementation::beyond_plan(std::uint64_t more) const {
  const std::uint64_t needed = (planned_.backed_bytes() + granule_ - 1) / granule_;
  const std::uint64_t mapped = region_.mapped() + more;
  return mapped - std::min(mapped, needed);
}

bool CachingAllocator::Implementation::map_for_plan(Request& request, const std::vector<Interval>& missing,
                                                    bool& short_of_memory) {
  std::vector<Interval> left;
  try {
    segments_.map(missing, left);
  } catch (const Error& error) {  // what failed does not matter: the caching path will see it
    short_of_memory = dynamic_cast<const OutOfMemory*>(&error) != nullptr;
    note_mapped(region_, request.pool, left);
    return false;
  }
  note_mapped(region_, request.pool, missing);
  return true;
}

void CachingAllocator::Implementation::begin_iteration() {
  if (!plans_periods_) return;
  const MutexLock lock(mutex_);
  const bool was_planned = planned_.is_planned();
  planned_.begin_iteration();
  look_at_plan(was_planned);
}

void CachingAllocator::Implementation::look_at_plan(bool was_planned) {
  const bool is_new = plans_made_ != planned_.statistics().plans;
  plans_made_ = planned_.statistics().plans;
  if (is_new && is_wasteful()) planned_.reject_plan();
  if (planned_.bytes() > region_.bytes()) planned_.drop_plans();
  if (planned_.is_planned() && (is_new || !was_planned)) make_way_for_plan(is_new);
}

// Whether the new plan would need more than its iteration took without one: that has been mapped for it, and
// mapped still, beside what stays.
bool CachingAllocator::Implementation::is_wasteful() {
  const Pool& pool = *pools_.front();
  Bytes staying = 0;
  for (const auto& stream : owned_streams_) {
    const MutexLock lock(stream->mutex);
    if (const Cache* const cache = stream->find_cache(pool)) staying += cache->statistics.allocated;
  }
  staying -= std::min(staying, region_.held());
  const Bytes without = pool.reserved * granule_;
  return planned_.backed_bytes() + staying > without + without / 100 + granule_;
}

// What served while there was no plan is not needed now. Behind a new plan, which is worth a wait for work
// that is under way, all of it goes, since the next iteration may be a smaller one; else what the plan will
// not take.
void CachingAllocator::Implementation::make_way_for_plan(bool is_new) {
  Pool& pool = *pools_.front();
  std::exception_ptr failure;
  flush_pool(pool);
  if (is_new) {
    synchronise(failure);
    unmap_spare(pool, pool.reserved, {});
    return;
  }
  poll(failure);
  std::uint64_t wanted = 0;
  for (const Interval& run : region_.missing(region_.at(0, planned_.bytes()))) wanted += run.length();
  wanted -= std::min(wanted, beyond_plan(wanted));
  const std::uint64_t spare = pool.heap.spare().count();
  if (spare > wanted) unmap_spare(pool, spare - wanted, {});
}

std::uint64_t CachingAllocator::Implementation::unmap_of_plan(std::uint64_t most, Interval kept) {
  return unmap(region_, *pools_.front(), region_.recyclable(segments_.pieces(), most, kept));
}

PlanStatistics CachingAllocator::Implementation::plan_statistics() {
  const PlannedPoolStatistics& pool = planned_.statistics();
  return {pool.plans,    pool.hits,        pool.unplanned,
          pool.misses,   planned_.bytes(), region_.mapped() * granule_,
          region_.held()};
}

}  // namespace stowage
