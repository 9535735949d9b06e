// CudaMemoryResource: the caching allocator as a memory resource of CUDA's core libraries (CCCL). One class
// with the members of both generations of <cuda/memory_resource>:
//   CCCL 3.0 (CUDA 13.0)  cuda::mr::resource, async_resource and async_resource_with<…, device_accessible>:
//                         allocate, deallocate, allocate_async, deallocate_async
//   since CCCL 3.1        cuda::mr::synchronous_resource and resource: allocate_sync, deallocate_sync;
//                         allocate and deallocate, whose first argument is a stream
// For CUDA C++ with CCCL's headers; nothing else of Stowage includes this.
//
// A cheap handle: copies share one state and are equal. The allocator and its device, a CUDA device, outlive
// all of them and all memory. Streams live as long, or until `forget_stream`. Order: the stream's, as
// CachingAllocator says. What `allocate(bytes, alignment)` and `allocate_sync` give may be used on any stream
// at once: they wait until what used the memory before is done. What `deallocate(pointer, …)` and
// `deallocate_sync` take must not be in use any more. Any pair of the two may meet on one block.
// Errors: OutOfMemory, DeviceError, InvalidInput (an alignment above 512; an address that is none). The
// functions that give memory back throw InvalidInput alone. Threads: all calls, from any thread. 0 bytes:
// null, in both directions.
#pragma once

// CCCL 3.0 shows its memory resources to those who ask.
#ifndef LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
#endif
#include <cstddef>
#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <memory>

#include "stowage/stream_memory.h"

namespace stowage {

class CudaMemoryResource {
 public:
  static constexpr std::size_t default_alignment = 256;

  CudaMemoryResource(Device& device, CachingAllocator& allocator)
      : memory_(std::make_shared<StreamMemory>(device, allocator)) {}

  // Stream-ordered, CCCL 3.0.
  void* allocate_async(std::size_t bytes, std::size_t alignment, cuda::stream_ref stream) {
    return memory_->allocate(bytes, alignment, stream.get());
  }
  void* allocate_async(std::size_t bytes, cuda::stream_ref stream) {
    return memory_->allocate(bytes, default_alignment, stream.get());
  }
  void deallocate_async(void* pointer, std::size_t, std::size_t, cuda::stream_ref stream) {
    memory_->release(pointer, stream.get());
  }
  void deallocate_async(void* pointer, std::size_t, cuda::stream_ref stream) {
    memory_->release(pointer, stream.get());
  }
  // Synchronous, CCCL 3.0.
  void* allocate(std::size_t bytes, std::size_t alignment = default_alignment) {
    return memory_->allocate_for_all(bytes, alignment);
  }
  void deallocate(void* pointer, std::size_t, std::size_t = default_alignment) {
    memory_->release_unused(pointer);
  }

  // Stream-ordered, since CCCL 3.1.
  void* allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = default_alignment) {
    return memory_->allocate(bytes, alignment, stream.get());
  }
  void deallocate(cuda::stream_ref stream, void* pointer, std::size_t, std::size_t = default_alignment) {
    memory_->release(pointer, stream.get());
  }
  // Synchronous, since CCCL 3.1.
  void* allocate_sync(std::size_t bytes, std::size_t alignment = default_alignment) {
    return memory_->allocate_for_all(bytes, alignment);
  }
  void deallocate_sync(void* pointer, std::size_t, std::size_t = default_alignment) {
    memory_->release_unused(pointer);
  }

  // Call before a stream is destroyed; its memory must have been given back.
  void forget_stream(cuda::stream_ref stream) { memory_->forget_stream(stream.get()); }

  friend bool operator==(const CudaMemoryResource& a, const CudaMemoryResource& b) {
    return a.memory_ == b.memory_;
  }
  friend bool operator!=(const CudaMemoryResource& a, const CudaMemoryResource& b) { return !(a == b); }
  friend constexpr void get_property(const CudaMemoryResource&, cuda::mr::device_accessible) noexcept {}

 private:
  std::shared_ptr<StreamMemory> memory_;
};

}  // namespace stowage
