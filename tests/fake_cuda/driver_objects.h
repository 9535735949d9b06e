// What the fake driver has given out: memory, contexts, pools.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <set>

namespace fake_cuda {

inline void* as_pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

struct Allocated {
  std::size_t bytes = 0;
  CUcontext context = nullptr;  // null: of a pool
  bool managed = false;
  bool opened = false;  // another process's
};

// Contexts and pools are addresses of bytes that nobody looks into.
struct Objects {
  std::mutex mutex;
  std::map<CUdeviceptr, Allocated> allocated;
  std::map<void*, CUcontext> pinned;  // page-locked memory, and the context that takes it along
  std::set<char*> contexts, pools;
  char primary = 0, default_pool = 0;
  int primary_users = 0;
};

Objects& objects();

inline CUcontext primary_context() { return reinterpret_cast<CUcontext>(&objects().primary); }
// This thread's (driver_contexts.cpp).
CUcontext current_context();

// Ends what was allocated in the context, and the memory of pools, too, where they go with it.
void release_all_of(CUcontext context, bool pools_too);

}  // namespace fake_cuda
