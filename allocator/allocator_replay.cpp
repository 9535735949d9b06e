// How requests are served from plans (replay/server.h), in memory of the plans' own (replay/region.h).
//
// The allocator's mutex is held while a plan is followed, since a plan goes by the order of requests. Steps
// of a request:
//   1. plan_server_.allocate: compares it with the plan; its ticket stands for it from now on;
//   2. follow_plan: makes way for another plan, if that has come into use;
//   3. take_planned, if it has an offset. If that fails, or without an offset, the caching path serves it.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "allocator/caching_allocator_implementation.h"
#include "stowage/error.h"

namespace stowage {
namespace {

// A lane that is busy for longer may depend on a thread that waits for the allocator: the plan then gives up.
constexpr std::chrono::seconds longest_wait{2};
constexpr std::chrono::microseconds between_looks{20};

}  // namespace

void* CachingAllocator::Implementation::allocate_planned(Bytes bytes, Bytes asked, Stream& stream) {
  std::uint32_t ticket = Block::no_ticket;
  {
    const MutexLock lock(mutex_);
    Pool& pool = pool_of(stream);
    if (!pool.is_private()) {
      const PlanUse before = plan_use();
      const auto answer = plan_server_.allocate(bytes, stream.lane);
      ticket = answer.ticket;
      try {
        follow_plan(before);
        std::exception_ptr failure;
        Request request{bytes, asked, stream, pool, failure};
        if (answer.offset) {
          if (Block* const block = take_planned(request, plan_region_.at(*answer.offset, bytes))) {
            block->ticket = ticket;
            return address_of(*block);
          }
          plan_server_.decline(ticket);
        }
      } catch (...) {
        if (answer.offset) plan_server_.decline(ticket);
        plan_server_.cancel(ticket);
        throw;
      }
    }
  }
  try {
    void* const address = allocate_cached(bytes, asked, stream);
    block_at(address, "allocate").ticket = ticket;
    return address;
  } catch (...) {
    const MutexLock lock(mutex_);
    if (ticket != Block::no_ticket) plan_server_.cancel(ticket);
    throw;
  }
}

bool CachingAllocator::Implementation::release_planned(Block& block, Stream* target) {
  const MutexLock lock(mutex_);
  {
    const MutexLock stream_lock(block.cache->stream.mutex);
    if (!block.live) return false;  // allocate() throws
  }
  const std::uint32_t ticket = std::exchange(block.ticket, Block::no_ticket);
  if (ticket != Block::no_ticket) plan_server_.free(ticket);
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

// Returns null if waits cannot be inserted, or there is no memory for it.
caching::Block* CachingAllocator::Implementation::take_planned(Request& request, Interval place) {
  if (!insert_waits(request, plan_region_.waits(place, request.stream.clock))) return nullptr;
  if (const std::uint64_t missing = plan_region_.missing(place); missing > 0) {
    poll(request.failure);
    if (plan_server_.moves_granules() && waits_for_granules_) wait_for_granules(request, place);
    if (memory_.room() < missing) flush_pool(request.pool);
    if (!plan_region_.map_granules(place, plan_server_.needed_bytes())) return nullptr;
  }
  plan_region_.take(place);
  try {
    Block& block = hand_out_new(request, place);
    block.is_planned = true;
    return &block;
  } catch (...) {
    plan_region_.give(place, {});
    throw;
  }
}

// A plan whose granules move holds no more than it needs: its requests wait until lanes are done with enough
// granules. A wait that takes too long is the plan's last one: from then on the plan holds more.
void CachingAllocator::Implementation::wait_for_granules(Request& request, Interval place) {
  if (!plan_region_.awaits_granules(place, plan_server_.needed_bytes())) return;
  history_.add({caching::EventKind::synchronise, 0, 0, 0, 0});
  const auto end = std::chrono::steady_clock::now() + longest_wait;
  while (plan_region_.awaits_granules(place, plan_server_.needed_bytes())) {
    if (std::chrono::steady_clock::now() > end) {
      waits_for_granules_ = false;
      return;
    }
    std::this_thread::sleep_for(between_looks);
    for (const auto& stream : owned_streams_) {
      const MutexLock lock(stream->mutex);
      if (stream->retired || stream->is_captured()) continue;
      stream->marks.poll();
      if (auto failed = stream->marks.take_failure()) request.failure = std::move(failed);
    }
  }
}

void CachingAllocator::Implementation::begin_iteration() {
  if (!plans_periods_) return;
  const MutexLock lock(mutex_);
  const PlanUse before = plan_use();
  plan_server_.begin_iteration();
  follow_plan(before);
}

// Rejects a new plan that needs more than its iteration took without one, and makes way for a plan that has
// come into use. A new plan is worth a wait for work that is under way, and all spare memory, since the next
// iteration may need less than this one did; a known plan is not.
void CachingAllocator::Implementation::follow_plan(PlanUse before) {
  Pool& pool = *pools_.front();
  const bool is_new = plan_use().plans != before.plans;
  if (is_new) waits_for_granules_ = true;
  if (is_new && is_wasteful(pool)) plan_server_.reject_plan();
  if (plan_server_.bytes() > plan_region_.bytes()) plan_server_.drop_plans();
  if (!plan_server_.is_planned() || (before.is_planned && !is_new)) return;
  flush_pool(pool);
  std::exception_ptr failure;
  if (is_new) {
    synchronise(failure);
    memory_.unmap_spare(pool, pool.reserved);
  } else {
    poll(failure);
    plan_region_.make_way(plan_server_.bytes(), plan_server_.needed_bytes());
  }
}

// Memory that the iteration took without a plan is mapped still, beside the blocks that stay.
bool CachingAllocator::Implementation::is_wasteful(const Pool& pool) {
  const Bytes allocated = allocated_in(pool);
  const Bytes staying = allocated - std::min(allocated, plan_region_.taken_bytes());
  const Bytes without = pool.reserved * granule_;
  return plan_server_.needed_bytes() + staying > without + without / 100 + granule_;
}

}  // namespace stowage
