// The caching allocator itself: streams and their caches, blocks, pools. MappedMemory holds the memory behind
// them; replay/ makes and follows plans.
//
// Calls are in caching_allocator.cpp (hits of a stream's cache, and the public calls), ladder.cpp (other
// requests), allocator_replay.cpp (requests that are compared with a plan), allocator_pools.cpp (pools,
// trimming, limits), allocator_account.cpp (statistics) and allocator_snapshot.cpp (block by block).
#pragma once

#include <array>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include "allocator/block.h"
#include "allocator/history.h"
#include "allocator/mapped_memory.h"
#include "allocator/observers.h"
#include "allocator/replay/region.h"
#include "allocator/replay/server.h"
#include "allocator/stream_cache.h"
#include "src/base/mutex.h"
#include "stowage/allocator_snapshot.h"
#include "stowage/caching_allocator.h"

namespace stowage {

class CachingAllocator::Implementation {
 public:
  Implementation(Device& device, const CachingAllocatorOptions& options);
  ~Implementation();
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  void* allocate(Bytes bytes, LaneId lane) STOWAGE_EXCLUDES(mutex_);
  void release(void* address) STOWAGE_EXCLUDES(mutex_);
  void release(void* address, LaneId lane) STOWAGE_EXCLUDES(mutex_);
  Bytes block_bytes(const void* address);
  bool owns(const void* address) const;
  void record_stream(const void* address, LaneId lane) STOWAGE_EXCLUDES(mutex_);

  void begin_iteration() STOWAGE_EXCLUDES(mutex_);

  Bytes trim() STOWAGE_EXCLUDES(mutex_);
  void retire_stream(LaneId lane) STOWAGE_EXCLUDES(mutex_);
  void set_limit(Bytes limit) STOWAGE_EXCLUDES(mutex_);
  PoolId create_pool() STOWAGE_EXCLUDES(mutex_);
  void destroy_pool(PoolId pool) STOWAGE_EXCLUDES(mutex_);
  // Returns the pool that the stream's requests went to before.
  PoolId route(LaneId lane, PoolId pool) STOWAGE_EXCLUDES(mutex_);
  // Ends a route, and throws nothing: the stream's requests go to the default pool if `before` is gone. Does
  // nothing if the stream was retired.
  void end_route(LaneId lane, PoolId before) STOWAGE_EXCLUDES(mutex_);

  caching::Observers& observers() { return observers_; }
  AllocatorStatistics statistics() STOWAGE_EXCLUDES(mutex_);
  void reset_peaks() STOWAGE_EXCLUDES(mutex_);
  std::string account() STOWAGE_EXCLUDES(mutex_);
  AllocatorSnapshot snapshot() STOWAGE_EXCLUDES(mutex_);
  const caching::History& history() const { return history_; }

 private:
  using Block = caching::Block;
  using Cache = caching::Cache;
  using Interval = caching::Interval;
  using Need = caching::Need;
  using Place = caching::Place;
  using Pool = caching::Pool;
  using Stream = caching::Stream;

  static constexpr std::size_t most_lanes = 4096;
  static constexpr std::size_t slices = 8;  // number of private pools that can exist at a time
  static constexpr std::uint32_t most_questions = 8;

  struct Request {
    Bytes bytes = 0;  // size of the block, rounded up
    Bytes asked = 0;
    Stream& stream;
    Pool& pool;
    std::exception_ptr& failure;  // the latest error of a device call
  };

  // caching_allocator.cpp
  Stream& stream_of(LaneId lane) STOWAGE_EXCLUDES(mutex_) {
    Stream* const known = lane < most_lanes ? streams_[lane].load(std::memory_order_acquire) : nullptr;
    return known != nullptr ? *known : new_stream(lane);
  }
  Stream& new_stream(LaneId lane) STOWAGE_EXCLUDES(mutex_);
  Block& block_at(const void* address, std::string_view call);
  void* address_of(const Block& block) const { return base_ + block.at.begin; }
  // REQUIRES, for both: the lock of the cache's stream.
  void hand_out(Cache& cache, Block& block, Bytes asked);
  void take_back(Cache& cache, Block& block, std::string_view call);
  void* allocate_cached(Bytes bytes, Bytes asked, Stream& stream) STOWAGE_EXCLUDES(mutex_);
  void release_cached(Block& block) STOWAGE_EXCLUDES(mutex_);
  void release_cached(Block& block, Stream& target) STOWAGE_EXCLUDES(mutex_);
  void mark_if_due(Stream& stream, Bytes bytes) STOWAGE_REQUIRES(stream.mutex);
  void release_used_elsewhere(Block& block) STOWAGE_EXCLUDES(mutex_);
  // Takes the block back on its own lane and on those that were recorded.
  caching::Tags take_back_everywhere(Block& block) STOWAGE_REQUIRES(mutex_);
  // Ends the block, whose bytes are free once `tags` have passed.
  void give(Block& block, caching::Tags tags) STOWAGE_REQUIRES(mutex_);

  // allocator_replay.cpp
  void* allocate_planned(Bytes bytes, Bytes asked, Stream& stream) STOWAGE_EXCLUDES(mutex_);
  // Returns true if the block lay in the plans' region and is released. Else releases the block's ticket, if
  // it has one, and returns false. A block that is not live stays as it is.
  bool release_planned(Block& block, Stream* target) STOWAGE_EXCLUDES(mutex_);
  Block* take_planned(Request& request, Interval place) STOWAGE_REQUIRES(mutex_);
  struct PlanUse {
    bool is_planned = false;
    std::uint64_t plans = 0;  // number of plans made so far
  };
  PlanUse plan_use() const STOWAGE_REQUIRES(mutex_) {
    return {plan_server_.is_planned(), plan_server_.statistics().plans};
  }
  void wait_for_granules(Request& request, Interval place) STOWAGE_REQUIRES(mutex_);
  void follow_plan(PlanUse before) STOWAGE_REQUIRES(mutex_);
  bool is_wasteful(const Pool& pool) STOWAGE_REQUIRES(mutex_);

  // ladder.cpp
  void* allocate_slowly(Bytes bytes, Bytes asked, Stream& stream) STOWAGE_EXCLUDES(mutex_);
  Pool& pool_of(Stream& stream) STOWAGE_REQUIRES(mutex_);
  Block* climb(Request& request) STOWAGE_REQUIRES(mutex_);
  Block* occupy(Request& request, const Place& place) STOWAGE_REQUIRES(mutex_);
  Block& hand_out_new(Request& request, Interval at) STOWAGE_REQUIRES(mutex_);
  std::optional<Place> find(const Request& request, Need most, std::size_t breadth, bool may_wait = true)
      STOWAGE_REQUIRES(mutex_);
  Block* take_ready(Request& request) STOWAGE_REQUIRES(mutex_);
  Block* take_waiting(Request& request, std::size_t breadth) STOWAGE_REQUIRES(mutex_);
  Block* take_mapping(Request& request, std::size_t breadth) STOWAGE_REQUIRES(mutex_);
  bool insert_waits(Request& request, const caching::Tags& tags) STOWAGE_REQUIRES(mutex_);
  bool obtain(Request& request, const Place& place) STOWAGE_REQUIRES(mutex_);
  bool map(Request& request, const Place& place) STOWAGE_REQUIRES(mutex_);
  void flush(Cache& cache) STOWAGE_REQUIRES(mutex_);
  void flush_stream(Stream& stream, Pool& pool) STOWAGE_REQUIRES(mutex_);
  void flush_pool(Pool& pool) STOWAGE_REQUIRES(mutex_);
  // Marks what each stream released and asks which marks have passed, but for streams in a capture. Failures
  // of the device go to `failure`.
  void poll(std::exception_ptr& failure) STOWAGE_REQUIRES(mutex_);
  void synchronise(std::exception_ptr& failure) STOWAGE_REQUIRES(mutex_);
  [[noreturn]] void fail(const OutOfMemoryNotice& notice, const std::exception_ptr& failure)
      STOWAGE_EXCLUDES(mutex_);

  // allocator_pools.cpp
  Pool& pool_with(PoolId pool, std::string_view call) STOWAGE_REQUIRES(mutex_);
  std::vector<std::unique_ptr<Pool>> first_pools() const;
  std::uint64_t empty_default_pool(std::uint64_t most) STOWAGE_REQUIRES(mutex_);
  Interval slice_space(std::size_t slice) const;
  // Returns the end of the default pool's space, which plans have.
  Interval plan_space() const;

  // allocator_account.cpp
  // `streams_held`: the caller holds the mutexes of all streams; else each is taken in its turn.
  PoolStatistics pool_statistics(const Pool& pool, std::vector<StreamStatistics>& streams, bool streams_held)
      STOWAGE_REQUIRES(mutex_);
  AllocatorStatistics statistics_locked(bool streams_held = false) STOWAGE_REQUIRES(mutex_);
  std::string account_locked() STOWAGE_REQUIRES(mutex_);
  void note_peaks(Pool& pool) STOWAGE_REQUIRES(mutex_);
  // Returns the bytes of the pool's live blocks.
  Bytes allocated_in(const Pool& pool) STOWAGE_REQUIRES(mutex_);

  // allocator_snapshot.cpp; with all streams held.
  std::vector<SnapshotSegment> segments_of(const Pool& pool) STOWAGE_REQUIRES(mutex_);
  std::vector<SnapshotBlock> blocks_in(const Pool& pool, Interval segment) STOWAGE_REQUIRES(mutex_);
  void add_planned_segments(const Pool& pool, std::vector<SnapshotSegment>& segments)
      STOWAGE_REQUIRES(mutex_);
  std::vector<SnapshotBlock> planned_blocks_in(Interval segment) STOWAGE_REQUIRES(mutex_);

  Device& device_;
  caching::History history_;
  std::array<std::atomic<Stream*>, most_lanes> streams_{};
  // Number of requests that looked for memory released by other streams.
  std::atomic<std::uint64_t> demands_{0};

  mutable Mutex mutex_;
  caching::MappedMemory memory_ STOWAGE_GUARDED_BY(mutex_);
  // Copies of `memory_`'s constants, which need no lock.
  std::byte* const base_;
  const Bytes range_;
  const Bytes granule_;
  caching::BlockTable table_;  // unlocked: only the owner of a block uses its entry
  std::uint64_t failed_requests_ STOWAGE_GUARDED_BY(mutex_) = 0;
  caching::BlockStore blocks_ STOWAGE_GUARDED_BY(mutex_);
  const bool plans_periods_;
  std::vector<std::unique_ptr<Pool>> pools_ STOWAGE_GUARDED_BY(mutex_);  // the default pool comes first
  caching::replay::Server plan_server_ STOWAGE_GUARDED_BY(mutex_);
  caching::replay::Region plan_region_ STOWAGE_GUARDED_BY(mutex_);
  bool waits_for_granules_ STOWAGE_GUARDED_BY(mutex_) = true;  // false once a wait of the plan took too long
  PoolId next_pool_ STOWAGE_GUARDED_BY(mutex_) = 1;
  std::vector<std::unique_ptr<Stream>> owned_streams_ STOWAGE_GUARDED_BY(mutex_);  // retired streams included
  caching::Observers observers_;
};

}  // namespace stowage
