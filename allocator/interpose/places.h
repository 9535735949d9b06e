// Places: where the memory of the program's pools is, and which primary context each device has.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "src/base/mutex.h"

namespace stowage::interpose {

struct PoolPlace {
  bool on_host = false;
  int device = 0;
};

// Thread-safe.
class Places {
 public:
  void pool_created(CUmemoryPool pool, PoolPlace place);
  void pool_destroyed(CUmemoryPool pool);
  // Returns nullopt for the driver's own pools, which are the current device's.
  std::optional<PoolPlace> of(CUmemoryPool pool);

  void primary_context_is(CUdevice device, std::uint64_t context);
  std::uint64_t primary_context(CUdevice device);  // 0: the context is not known

  // The lock is held while the process forks.
  void before_fork() STOWAGE_NO_THREAD_SAFETY_ANALYSIS { mutex_.lock(); }
  void after_fork() STOWAGE_NO_THREAD_SAFETY_ANALYSIS { mutex_.unlock(); }

 private:
  Mutex mutex_;
  std::unordered_map<CUmemoryPool, PoolPlace> pools_ STOWAGE_GUARDED_BY(mutex_);
  std::map<CUdevice, std::uint64_t> primary_contexts_ STOWAGE_GUARDED_BY(mutex_);
};

Places& places();

}  // namespace stowage::interpose
