// Cached: the service that gives out freed memory of cuMemAlloc again, by the caching allocator.
//
// A cached cuMemFree waits for the context's work, as the driver's does, before anyone gets the memory; so
// blocks need no stream. While a stream is captured nobody can wait: memory freed then is kept back until a
// later free, or a call that finds the card full, has waited. The driver serves everything else: allocations
// in order of a stream, whose pools keep memory themselves; managed and pitched memory; contexts that a
// program made, which take their memory along; and all of it where there are several cards, since a peer
// would not see the memory.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "allocator/interpose/cache_device.h"
#include "allocator/interpose/service.h"
#include "src/base/mutex.h"
#include "stowage/caching_allocator.h"

namespace stowage::interpose {

// Thread-safe.
class Cached : public Service {
 public:
  // `limit`: bytes of a card that the cache may hold.
  explicit Cached(Bytes limit) : limit_(limit) {}

  CUresult allocate(const AllocateCall& call) override;
  CUresult free(const FreeCall& call) override;
  std::optional<ProgramMemory> find(CUdeviceptr address) override;
  Bytes idle_bytes(CUdevice device) override;
  bool make_room() override;
  void primary_context_ends(CUdevice device) override;

  void before_fork() STOWAGE_NO_THREAD_SAFETY_ANALYSIS override { mutex_.lock(); }
  void after_fork_in_parent() STOWAGE_NO_THREAD_SAFETY_ANALYSIS override { mutex_.unlock(); }
  void after_fork_in_child() STOWAGE_NO_THREAD_SAFETY_ANALYSIS override;

 private:
  struct Card {
    CUcontext context = nullptr;  // the device's primary context
    CUdevice device = 0;
    std::unique_ptr<CacheDevice> memory;
    std::unique_ptr<CachingAllocator> allocator;
    // Freed addresses whose users nobody has waited for yet; guarded by mutex_.
    std::vector<CUdeviceptr> kept_back;
  };

  // Returns the card of the current context; null if its memory may not be cached.
  std::shared_ptr<Card> open_here() STOWAGE_EXCLUDES(mutex_);
  std::shared_ptr<Card> open_card(CUcontext context) STOWAGE_REQUIRES(mutex_);
  std::shared_ptr<Card> card() STOWAGE_EXCLUDES(mutex_);
  CUdeviceptr take(Bytes bytes);
  // Waits for the context's work, then frees the memory that was kept back before, and `address`
  // unless it is 0.
  CUresult release_behind_work(const std::shared_ptr<Card>& card, CUdeviceptr address)
      STOWAGE_EXCLUDES(mutex_);

  const Bytes limit_;
  PassThrough driver_;
  std::atomic<bool> used_ = false;  // true once any memory was cached
  Mutex mutex_;  // released while the allocator maps or unmaps, so that lookups of known blocks need not wait
  std::shared_ptr<Card> card_ STOWAGE_GUARDED_BY(mutex_);  // the one card that is open
  unsigned failures_ STOWAGE_GUARDED_BY(mutex_) = 0;  // failed attempts to open a card, one after another
  std::map<CUdeviceptr, ProgramMemory> blocks_ STOWAGE_GUARDED_BY(mutex_);
  // A range apart from the ids of Spill.
  std::uint64_t next_id_ STOWAGE_GUARDED_BY(mutex_) = std::uint64_t{3} << 62U;
};

}  // namespace stowage::interpose
