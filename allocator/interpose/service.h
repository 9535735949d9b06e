// Service: serves the memory calls of a program.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "allocator/interpose/entry_points.h"
#include "stowage/bytes.h"

namespace stowage::interpose {

// A call that allocates. The entry decides which fields count.
struct AllocateCall {
  Entry entry = Entry::mem_alloc;
  CUdeviceptr* address = nullptr;  // the address of the allocation is written here
  std::size_t bytes = 0;
  // cuMemAllocPitch: the pitch is written here; width and height are in bytes and rows.
  std::size_t* pitch = nullptr;
  std::size_t width = 0, height = 0;
  unsigned element_bytes = 0;
  unsigned flags = 0;           // used by cuMemAllocManaged
  CUmemoryPool pool = nullptr;  // used by cuMemAllocFromPoolAsync
  CUstream stream = nullptr;    // used by the asynchronous entries
};

struct FreeCall {
  Entry entry = Entry::mem_free;
  CUdeviceptr address = 0;
  CUstream stream = nullptr;  // used by cuMemFreeAsync
};

// An allocation that is not the driver's own, as the program believes it to be.
struct ProgramMemory {
  CUdeviceptr address = 0;
  Bytes bytes = 0;  // padding of rows included
  CUdevice device = 0;
  CUcontext context = nullptr;  // context that uses the memory: a free waits for its work
  std::uint64_t id = 0;         // unique within the service
};

// Serves what the ledger has admitted. Functions are called by any thread, several at once; the program gets
// their results, which must keep the promises of the driver's function.
class Service {
 public:
  Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  virtual ~Service() = default;
  virtual CUresult allocate(const AllocateCall& call) = 0;
  virtual CUresult free(const FreeCall& call) = 0;

  // Returns the allocation that `address` is in, unless it is the driver's own.
  virtual std::optional<ProgramMemory> find(CUdeviceptr address) {
    static_cast<void>(address);
    return std::nullopt;
  }
  // Returns the bytes of the device that the service holds and the program does not.
  virtual Bytes idle_bytes(CUdevice device) {
    static_cast<void>(device);
    return 0;
  }
  // Gives back memory that the program does not hold, since another call found too little. Returns false if
  // there was none.
  virtual bool make_room() { return false; }
  // Called before the primary context is reset, and after it went: memory that was allocated in it ends.
  virtual void primary_context_ends(CUdevice device) { static_cast<void>(device); }

  virtual void before_fork() {}
  virtual void after_fork_in_parent() {}
  virtual void after_fork_in_child() {}
};

// Hands each call to the driver as it is.
class PassThrough : public Service {
 public:
  CUresult allocate(const AllocateCall& call) override;
  CUresult free(const FreeCall& call) override;
};

}  // namespace stowage::interpose
