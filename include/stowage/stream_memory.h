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

  // Allocates in the stream's order. 0 bytes: null. Throws InvalidInput for an alignment that is no power of
  // two, or above 512, else what CachingAllocator::allocate_raw does.
  void* allocate(Bytes bytes, std::size_t alignment, void* stream);
  // Releases the memory behind the stream's work so far, which the caller has ordered behind all use of it.
  // Does nothing for null.
  void release(void* address, void* stream);
  // Allocates memory that any stream may use at once: waits until its former use has ended.
  void* allocate_for_all(Bytes bytes, std::size_t alignment);
  // Releases memory that is no longer in use. Does nothing for null.
  void release_unused(void* address);
  // Call before a stream is destroyed; its memory must have been given back. Does nothing for an unknown
  // stream.
  void forget_stream(void* stream);

 private:
  Device& device_;
  CachingAllocator& allocator_;
  StreamLanes streams_;
  Lane own_;  // lane of memory that any stream may use; the lane gets no work
};

}  // namespace stowage
