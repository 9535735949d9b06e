// Spill: memory of the host under addresses of the device, for allocations that the card has no room for.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "allocator/interpose/host_chunks.h"
#include "allocator/interpose/ledger.h"
#include "allocator/interpose/service.h"
#include "src/base/mutex.h"

namespace stowage::interpose {

struct SpillAnswer {
  CUresult result = CUDA_SUCCESS;
  std::string_view why = {};  // the step that failed, for the record
};

// Thread-safe, but not for two frees of one address; Ledger::take lets only one thread free it. The lock is
// not held while a thread waits for the device.
class Spill {
 public:
  explicit Spill(Bytes limit) : on_(limit > 0), chunks_(limit) {}  // `limit`: host bytes; 0: nothing spills

  bool on() const { return on_; }
  // Replaces the driver's function. REQUIRES: the stream is not captured.
  SpillAnswer allocate(const AllocateCall& call, const Block& block);
  // A cuMemFree waits for the work of the memory's context, as the driver's does; a free in the order of a
  // stream takes effect once the stream's work has passed. While a stream is captured nobody can wait: the
  // memory is kept back until a later cuMemFree in its context, or an allocation that finds no more, has
  // waited. Another result than CUDA_SUCCESS: nothing is freed.
  CUresult free(const FreeCall& call);

  // Returns the allocation that `address` is in.
  std::optional<ProgramMemory> find(CUdeviceptr address);
  // Frees the memory whose streams have reached its free.
  void settle();

  // Called after the context or the device's state has gone: the driver has ended its work.
  void context_gone(std::uint64_t context);
  void device_reset(CUdevice device, std::uint64_t primary_context);

  // The lock is held while the process forks.
  void before_fork() STOWAGE_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  void after_fork_in_parent() STOWAGE_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }
  void after_fork_in_child() STOWAGE_NO_THREAD_SAFETY_ANALYSIS;

 private:
  struct Kept {
    ProgramMemory memory;
    HostOwner owner;
  };
  // A free in the order of a stream; `event` marks the stream's work up to the free.
  struct Pending {
    CUdeviceptr address = 0;
    std::uint64_t id = 0;         // 0: no memory is to be freed, but the event must still be destroyed
    CUcontext context = nullptr;  // context of `event`
    CUevent event = nullptr;
    bool passed = false;
    unsigned waiters = 0;  // number of threads that wait for the event without the lock, so that it must stay
  };

  // A free that takes effect after a wait for the context's work.
  struct Freed {
    CUdeviceptr address = 0;
    std::uint64_t id = 0;
    CUcontext context = nullptr;
  };

  CUresult free_in_order(const FreeCall& call);
  CUresult free_at_once(const Freed& freed);
  CUresult release_behind_work(const Freed* freed);  // `freed` null: frees only the memory that was kept back
  bool wait_for_room();                              // returns false if there was nothing to wait for
  void settle_locked() STOWAGE_REQUIRES(mutex_);
  bool settled(Pending& pending) STOWAGE_REQUIRES(mutex_);
  bool wait_for_pending() STOWAGE_NO_THREAD_SAFETY_ANALYSIS;  // returns false if nothing was pending
  void keep(const ProgramMemory& memory, const HostOwner& owner) STOWAGE_REQUIRES(mutex_);
  void release(CUdeviceptr address, std::uint64_t id) STOWAGE_REQUIRES(mutex_);
  template <class Predicate>
  void went_with(CUcontext context, Predicate gone) STOWAGE_REQUIRES(mutex_);

  const bool on_;
  Mutex mutex_;
  HostChunks chunks_ STOWAGE_GUARDED_BY(mutex_);
  std::map<CUdeviceptr, Kept> kept_ STOWAGE_GUARDED_BY(mutex_);
  std::list<Pending> pending_ STOWAGE_GUARDED_BY(mutex_);
  std::vector<Freed> kept_back_ STOWAGE_GUARDED_BY(mutex_);
  // The driver's own ids count from 1.
  std::uint64_t next_id_ STOWAGE_GUARDED_BY(mutex_) = std::uint64_t{1} << 63U;
  std::atomic<bool> used_ = false;  // true once any memory was spilled: most programs never spill
};

}  // namespace stowage::interpose
