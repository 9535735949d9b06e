// What serves the memory calls of a program.
#pragma once

#include <cuda.h>

#include <cstddef>

#include "allocator/interpose/entry_points.h"

namespace stowage::interpose {

// One call that allocates. Which of the fields count is up to the entry.
struct AllocateCall {
  Entry entry = Entry::mem_alloc;
  CUdeviceptr* address = nullptr;  // where the answer goes
  std::size_t bytes = 0;
  std::size_t* pitch = nullptr;  // cuMemAllocPitch: where the pitch goes, and the rows
  std::size_t width = 0, height = 0;
  unsigned element_bytes = 0;
  unsigned flags = 0;           // cuMemAllocManaged
  CUmemoryPool pool = nullptr;  // cuMemAllocFromPoolAsync
  CUstream stream = nullptr;    // the Async ones
};

struct FreeCall {
  Entry entry = Entry::mem_free;
  CUdeviceptr address = 0;
  CUstream stream = nullptr;  // cuMemFreeAsync
};

// Serves what the ledger has admitted. Functions are called by any thread, several at once; what they return
// is what the program gets, and it must keep the promises of the entry's own function.
class Service {
 public:
  Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  virtual ~Service() = default;
  virtual CUresult allocate(const AllocateCall& call) = 0;
  virtual CUresult free(const FreeCall& call) = 0;
};

}  // namespace stowage::interpose
