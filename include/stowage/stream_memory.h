// StreamMemory: a caching allocator by native streams (cudaStream_t as void*) instead of lanes: what
// stowage/cuda_memory_resource.h says, without CUDA's headers.
//
// Thread-safe. The device and the allocator, which is the device's, outlive it and all memory.
#pragma once

#include <memory>

#include "stowage/caching_allocator.h"
#include "stowage/stream_lanes.h"

namespace stowage {

class StreamMemory {
 public:
  StreamMemory(Device& device, CachingAllocator& allocator)
      : device_(device), allocator_(allocator), streams_(device), own_(device, LaneRole::h2d) {}
  // Forgets its streams, whose memory must have been given back.
  ~StreamMemory();
  StreamMemory(const StreamMemory&) = delete;
  StreamMemory& operator=(const StreamMemory&) = delete;

  // In the stream's order. 0 bytes: null. Throws InvalidInput for an alignment that is no power of two, or
  // above 512, else what CachingAllocator::allocate_raw does.
  void* allocate(Bytes bytes, std::size_t alignment, void* stream);
  // Behind what the stream was given so far, which the caller has ordered behind all use. Null: nothing.
  void release(void* address, void* stream);
  // For use on any stream at once: waits for whoever used the memory before.
  void* allocate_for_all(Bytes bytes, std::size_t alignment);
  // Of memory that is not in use any more. Null: nothing.
  void release_unused(void* address);
  // Before a stream is destroyed, all of whose memory was given back. Nothing where it was never met.
  void forget_stream(void* stream);

 private:
  Device& device_;
  CachingAllocator& allocator_;
  StreamLanes streams_;
  Lane own_;  // lane of memory that any stream may use; the lane gets no work
};

}  // namespace stowage
