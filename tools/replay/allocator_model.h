// An allocator that trace operations can be played to: a real one, or the rules of one over addresses alone.
#pragma once

#include <cstdint>

#include "src/history/allocation_trace.h"

namespace stowage {

class AllocatorModel {
 public:
  AllocatorModel() = default;
  AllocatorModel(const AllocatorModel&) = delete;
  AllocatorModel& operator=(const AllocatorModel&) = delete;
  virtual ~AllocatorModel() = default;

  // Ids as in a trace. Returns where the bytes are: those of two live allocations never overlap. Throws
  // OutOfMemory, and then nothing is allocated.
  virtual std::uint64_t allocate(AllocationId id, Bytes bytes, std::uint32_t stream) = 0;
  virtual void free(AllocationId id) = 0;
  virtual void begin_iteration() {}

  // What it holds of the device.
  virtual Bytes reserved_bytes() const = 0;
  // Gives back what it holds and nothing uses, as far as it can.
  virtual void release_cached() = 0;
  // False as long as it only learns, and peaks do not say yet what it can do.
  virtual bool is_warm() const { return true; }
};

}  // namespace stowage
