// The caching allocator block by block.
#include "stowage/allocator_snapshot.h"

#include <algorithm>

#include "allocator/caching_allocator_implementation.h"

namespace stowage {
namespace {

// Holds the mutexes of all streams. These are taken after the allocator's own mutex, under which nobody else
// takes two.
class AllStreams {
 public:
  explicit AllStreams(const std::vector<std::unique_ptr<caching::Stream>>& streams)
      STOWAGE_NO_THREAD_SAFETY_ANALYSIS : streams_(streams) {
    for (const auto& stream : streams_) stream->mutex.lock();
  }
  AllStreams(const AllStreams&) = delete;
  AllStreams& operator=(const AllStreams&) = delete;
  ~AllStreams() STOWAGE_NO_THREAD_SAFETY_ANALYSIS {
    for (const auto& stream : streams_) stream->mutex.unlock();
  }

 private:
  const std::vector<std::unique_ptr<caching::Stream>>& streams_;
};

}  // namespace

AllocatorSnapshot CachingAllocator::Implementation::snapshot() {
  const MutexLock lock(mutex_);
  const AllStreams held(owned_streams_);
  AllocatorSnapshot all;
  all.statistics = statistics_locked(true);
  for (const auto& pool : pools_) {
    std::vector<SnapshotSegment> segments = segments_of(*pool);
    std::move(segments.begin(), segments.end(), std::back_inserter(all.segments));
    if (!pool->is_private()) add_planned_segments(*pool, all.segments);
  }
  all.dropped_events = history_.copy(all.events);
  return all;
}

std::vector<SnapshotSegment> CachingAllocator::Implementation::segments_of(const Pool& pool) {
  std::vector<SnapshotSegment> segments;
  for (const Interval& mapped : pool.heap.mapped())
    segments.push_back({reinterpret_cast<std::uintptr_t>(base_ + mapped.begin), mapped.length(), pool.id,
                        pool.heap.is_small(mapped), blocks_in(pool, mapped)});
  return segments;
}

std::vector<SnapshotBlock> CachingAllocator::Implementation::blocks_in(const Pool& pool, Interval segment) {
  std::vector<SnapshotBlock> blocks;
  for (Bytes at = segment.begin; at < segment.end;) {
    SnapshotBlock found{reinterpret_cast<std::uintptr_t>(base_ + at), 0, 0, false, false, 0};
    Bytes end = std::min(pool.heap.gap_end(at), segment.end);
    if (end == at) {  // a block begins here, not a gap
      const Block& block = *table_.at(at);
      end = block.at.end;
      found.live = block.live;
      found.cached = !block.live;
      found.requested = block.live ? block.asked : 0;
      found.stream = block.cache->stream.lane;
    }
    found.bytes = end - at;
    blocks.push_back(found);
    at = end;
  }
  return blocks;
}

// Planned blocks lie behind the pool's other memory. Only the block table says where planned blocks lie.
void CachingAllocator::Implementation::add_planned_segments(const Pool& pool,
                                                            std::vector<SnapshotSegment>& segments) {
  for (const auto& [first, last] : plan_region_.mapped_runs()) {
    const Interval mapped{first * granule_, last * granule_};
    segments.push_back({reinterpret_cast<std::uintptr_t>(base_ + mapped.begin), mapped.length(), pool.id,
                        false, planned_blocks_in(mapped)});
  }
}

std::vector<SnapshotBlock> CachingAllocator::Implementation::planned_blocks_in(Interval segment) {
  std::vector<SnapshotBlock> blocks;
  const auto address = [this](Bytes at) { return reinterpret_cast<std::uintptr_t>(base_ + at); };
  Bytes gap = segment.begin;
  for (Bytes at = segment.begin; at < segment.end;) {
    const Block* const block = table_.at(at);
    if (block == nullptr || !block->live || !block->is_planned || block->at.begin != at) {
      at += caching::BlockTable::unit;
      continue;
    }
    if (gap < at) blocks.push_back({address(gap), at - gap, 0, false, false, 0});
    blocks.push_back({address(at), block->at.length(), block->asked, true, false, block->cache->stream.lane});
    at = gap = block->at.end;
  }
  if (gap < segment.end) blocks.push_back({address(gap), segment.end - gap, 0, false, false, 0});
  return blocks;
}

}  // namespace stowage
