// How the caching allocator goes through the steps of planned_serving.h.
//
// All of it under the allocator's mutex: the order of requests is what a plan goes by.
#include <algorithm>
#include <utility>

#include "allocator/caching_allocator_implementation.h"
#include "stowage/error.h"

namespace stowage {

void* CachingAllocator::Implementation::allocate_planned(Bytes bytes, Bytes asked, Stream& stream) {
  caching::PlannedServing::Ticket ticket = Block::no_ticket;
  {
    const MutexLock lock(mutex_);
    Pool& pool = pool_of(stream);
    if (!pool.is_private()) {
      const auto [its, place] = planned_.ask(bytes, stream.lane);
      ticket = its;
      follow_plan();
      std::exception_ptr failure;
      Request request{bytes, asked, stream, pool, failure};
      if (place) {
        if (Block* const block = take_planned(request, *place)) {
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
  const caching::PlannedServing::Ticket ticket = std::exchange(block.ticket, Block::no_ticket);
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

// Null: waits cannot be inserted, or there is no memory for it without waiting for work.
caching::Block* CachingAllocator::Implementation::take_planned(Request& request, Interval place) {
  if (!insert_waits(request, planned_.waits(place, request.stream.clock)) || !back(request, place))
    return nullptr;
  planned_.take(place);
  Block& block = hand_out_new(request, place);
  block.is_planned = true;
  return &block;
}

bool CachingAllocator::Implementation::back(Request& request, Interval place) {
  const std::uint64_t missing = planned_.missing(place);
  if (missing == 0) return true;
  poll(request.failure);
  if (memory_.room() < missing) flush_pool(request.pool);
  return planned_.back(place);
}

void CachingAllocator::Implementation::begin_iteration() {
  if (!plans_periods_) return;
  const MutexLock lock(mutex_);
  planned_.begin_iteration();
  follow_plan();
}

// A new plan is worth a wait for work that is under way, a known one is not.
void CachingAllocator::Implementation::follow_plan() {
  using Change = caching::PlannedServing::Change;
  Pool& pool = *pools_.front();
  const auto allocated = [&]() STOWAGE_REQUIRES(mutex_) { return allocated_in(pool); };
  const Change change = planned_.change(allocated);
  if (change == Change::none) return;
  flush_pool(pool);
  std::exception_ptr failure;
  if (change == Change::new_plan) {
    synchronise(failure);
  } else {
    poll(failure);
  }
  planned_.make_way(change);
}

}  // namespace stowage
