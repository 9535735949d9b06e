// CachingAllocator: device memory for programs that ask as they go, on any Device with virtual memory.
//
// It reserves one range of addresses, into which device memory is mapped by granules of 2 MiB. Released
// memory stays mapped and is used again in the order of streams (a stream is a LaneId of the device). A
// request tries in this order:
//   1. what was released on the same stream: at once, since the lane keeps its order;
//   2. what was released on another stream, where an event recorded behind the release has passed;
//   3. what was released on another stream, with a wait inserted into the requester's lane;
//   4. granules that nobody uses any more, unmapped where they are and mapped anew where the block fits;
//      then new memory of the device, up to the limit;
//   5. steps 2 to 4 again, after the calling thread has waited for all that was released;
//   6. observers are asked to free something, and all of it is tried again;
//   7. OutOfMemory, whose message is the whole account; or the DeviceError that stood in the way.
// A request fails only if the bytes that blocks hold leave no room for it, whatever is cached. A failed
// device call loses no memory: the block stays where it was, and the next request tries again.
//
// Order: memory may be used on its stream from `allocate` to `release`, as a kernel's argument would be: work
// is enqueued between the two calls, and need not be done when it is released. Use on any other stream must
// be ordered behind the work before it by the caller, and told by `record_stream` before the release.
// Threads: all calls may come from any thread. A block goes from one thread to another as any pointer does.
// Requests that a stream's own cache can serve take that stream's lock alone; others take turns. The device
// and its lanes outlive the allocator; call `retire_stream` before a lane is destroyed. When the allocator
// dies, nothing may use its memory any more. Device work may not call it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stowage/device.h"
#include "stowage/machine.h"

namespace stowage {

using PoolId = std::uint32_t;
inline constexpr PoolId default_pool = 0;

struct CachingAllocatorOptions {
  Bytes limit = unlimited;          // most mapped device memory, in whole granules
  std::size_t history_entries = 0;  // number of events that the history keeps; 0: no history
  // True: requests of repeated iterations are recorded, planned, and then served by their index, at fixed
  // addresses (see begin_iteration). All requests of the default pool then take turns.
  bool plan_periods = false;
};

// One stream's requests in one pool.
struct StreamStatistics {
  LaneId stream = 0;
  PoolId pool = default_pool;
  Bytes allocated = 0;       // bytes of callers' blocks, rounded up by the allocator
  Bytes requested = 0;       // bytes that callers asked for in these blocks
  Bytes peak_allocated = 0;  // largest `allocated` since the start or `reset_peaks`
  Bytes cached = 0;          // bytes released on this stream and kept in its cache
  std::uint64_t allocations = 0;
  std::uint64_t releases = 0;
  std::uint64_t hits = 0;   // allocations served from the stream's own cache
  std::uint64_t waits = 0;  // waits inserted into the stream's lane
};

struct PoolStatistics {
  PoolId pool = default_pool;
  Bytes allocated = 0;  // sum over the pool's streams, as are `requested` and `cached`
  Bytes requested = 0;
  Bytes cached = 0;
  // Largest sum of `allocated`: exact with one stream; with several, sampled whenever a cache does not serve
  // a request.
  Bytes peak_allocated = 0;
  Bytes reserved = 0;  // mapped
  Bytes peak_reserved = 0;
  Bytes largest_free = 0;    // largest contiguous mapped range outside the streams' caches
  double fragmentation = 0;  // share of the free mapped bytes that lies outside of `largest_free`
  std::uint64_t allocations = 0;
  std::uint64_t hits = 0;
  std::uint64_t waits = 0;
  std::uint64_t retries = 0;  // searches repeated after a synchronisation or an observer's call
};

// Counts of plans (CachingAllocatorOptions::plan_periods). Their memory and blocks count to the default pool
// and its streams too.
struct PlanStatistics {
  std::uint64_t plans = 0;      // made
  std::uint64_t hits = 0;       // requests that a plan served
  std::uint64_t unplanned = 0;  // requests that match, but have no planned place: they outlive an iteration
  std::uint64_t misses = 0;     // requests that a plan refused: size, order or stream differ, or no room
  Bytes bytes = 0;              // span of the kept plans' offsets, which share one range
  Bytes reserved = 0;           // mapped bytes of that range; granules that no block touches are lent
  Bytes allocated = 0;          // bytes of callers' blocks in that range
};

struct AllocatorStatistics {
  Bytes limit = unlimited;
  Bytes reserved = 0;
  Bytes peak_reserved = 0;
  std::uint64_t maps = 0;               // device calls that mapped memory
  std::uint64_t unmapped_granules = 0;  // granules given back to the device or moved
  std::uint64_t out_of_memory = 0;      // requests that failed
  std::vector<PoolStatistics> pools;
  std::vector<StreamStatistics> streams;  // ordered by pool and stream
  PlanStatistics planned;
};

// Notice to an observer. `account` says who holds what.
struct OutOfMemoryNotice {
  Bytes requested = 0;
  LaneId stream = 0;
  PoolId pool = default_pool;
  std::uint32_t times_asked = 0;  // earlier notices of the same request
  std::string account;
};
// Runs in the thread that asked for memory, which holds no lock: it may release, trim, and add and remove
// observers, but not allocate. True: what it freed is worth another try. Asked up to 8 times a request. The
// request throws what an observer throws.
using OutOfMemoryObserver = std::function<bool(const OutOfMemoryNotice&)>;
using ObserverId = std::uint32_t;

class DeviceBuffer;
struct AllocatorSnapshot;  // stowage/allocator_snapshot.h

class CachingAllocator {
 public:
  // Reserves address space, no memory. Throws InvalidInput where the device has no virtual ranges,
  // OutOfMemory where the process has not enough address space, and DeviceError.
  explicit CachingAllocator(Device& device, const CachingAllocatorOptions& options = {});
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  ~CachingAllocator();

  // bytes > 0 and a lane of the device, else InvalidInput. Addresses are 512-byte aligned. Throws OutOfMemory
  // or DeviceError, as rung 7 says.
  DeviceBuffer allocate(Bytes bytes, LaneId stream);
  void* allocate_raw(Bytes bytes, LaneId stream);
  // The block may be used again behind the work enqueued so far on its stream and on those recorded. With
  // `stream`, the block may be used again behind the work enqueued so far on that stream, which the caller
  // has ordered behind all use of the block. Throws InvalidInput for what is not the address of a live block,
  // or a `stream` that is no lane of the device, and nothing else.
  void release_raw(void* address);
  void release_raw(void* address, LaneId stream);
  // Returns the bytes from `address` to its block's end: at least those asked. Throws as release_raw does.
  Bytes block_bytes(const void* address) const;
  // Whether `address` lies in the allocator's range, in a block or not. Takes no lock.
  bool owns(const void* address) const;
  // Says that `stream` uses the block too, until the block's release. Throws InvalidInput as release_raw.
  void record_stream(const void* address, LaneId stream);

  // Begins an iteration. From the first call on the caller names iterations; before, the allocator finds the
  // period itself. The first iterations are recorded: sizes, order, streams, lifetimes. Blocks that are made
  // and released within an iteration get fixed places from the placement pass, and each later iteration is
  // compared with the plan, request by request. A request that differs in size, order or stream, or would
  // overlap a block that was not released as planned, is served as if there were no plan. After enough of
  // these the plan is given up for the iteration, and the next is planned anew. Making a plan takes up to
  // some seconds, and waits for all that was released. Where a plan moves memory from one block to another,
  // requests wait until lanes are done with it, at most two seconds; if that was not enough, the plan takes
  // more memory from then on and waits no more. Does nothing without CachingAllocatorOptions::plan_periods.
  void begin_iteration();

  // Waits for all that was released, then gives granules that no block touches back to the device. Returns
  // the number of bytes given back.
  Bytes trim();
  // Waits for the stream, whose blocks must have been released, else InvalidInput, and forgets it; the lane
  // may be destroyed then. Throws DeviceError if it cannot be waited for; the call may be repeated. Does
  // nothing for a stream that is not in use.
  void retire_stream(LaneId stream);
  // Sets the limit. If more is mapped now: trims, and maps nothing until enough was released.
  void set_limit(Bytes limit);

  // Makes a pool of memory for work that will be replayed at fixed addresses (graph capture): the pool's
  // memory stays mapped, and is used by nobody else, until the pool is destroyed. Up to 8 at a time, else
  // InvalidInput. Requests of a stream are routed to it by a PoolScope. `destroy_pool` waits for its streams.
  // It throws InvalidInput while blocks of the pool are live or requests are routed to it, and for the
  // default pool and one that is not there; DeviceError if the device still uses the pool's memory or does
  // not take it back.
  PoolId create_pool();
  void destroy_pool(PoolId pool);

  // Throws InvalidInput for a function that is empty.
  ObserverId add_observer(OutOfMemoryObserver observer);
  // When it returns, the observer runs in no other thread and begins in none; runs of other threads are
  // waited for. Called by an observer, it does not wait for the calling thread's own run, nor for an observer
  // that is itself in this call. If the observer was removed already, or never added, it only waits for the
  // observer's runs.
  void remove_observer(ObserverId observer);

  AllocatorStatistics statistics() const;
  void reset_peaks();
  // The last `history_entries` events as JSON: {"version": 1, "dropped": n, "events": [{"number", "what",
  // "address", "bytes", "stream", "pool"}, …]}, oldest first; and as a table for people.
  std::string history_json() const;
  std::string history_text() const;
  // Returns who holds what, as the message of OutOfMemory does.
  std::string account() const;
  // Returns all memory, block by block, and the history, at one moment: no request is served meanwhile. The
  // time is in proportion to the number of blocks.
  AllocatorSnapshot snapshot() const;

 private:
  friend class PoolScope;
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

// Routes the requests of `stream` to `pool` while the scope lives; scopes of one stream nest. Afterwards
// requests go to the former pool, or to the default pool if the former one is gone. Nothing happens if the
// stream was retired.
class PoolScope {
 public:
  // Throws InvalidInput for a pool that is not there, and a `stream` that is no lane of the device.
  PoolScope(CachingAllocator& allocator, LaneId stream, PoolId pool);
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;
  ~PoolScope();

 private:
  CachingAllocator& allocator_;
  LaneId stream_;
  PoolId before_;
};

// Move-only owner of one block, which the allocator outlives; releases it on its stream when it dies.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(CachingAllocator& allocator, Bytes bytes, LaneId stream)
      : allocator_(&allocator),
        data_(static_cast<std::byte*>(allocator.allocate_raw(bytes, stream))),
        bytes_(bytes) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~DeviceBuffer() {
    if (data_ != nullptr) allocator_->release_raw(data_);
  }
  std::byte* data() const { return data_; }
  Bytes bytes() const { return bytes_; }
  void record_stream(LaneId stream) const { allocator_->record_stream(data_, stream); }

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  CachingAllocator* allocator_ = nullptr;
  std::byte* data_ = nullptr;
  Bytes bytes_ = 0;
};

}  // namespace stowage
