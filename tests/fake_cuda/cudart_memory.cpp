// libcudart: allocation, copies, what pointers are.
#include <cstring>
#include <utility>
#include <vector>

#include "tests/fake_cuda/cudart_call.h"
#include "tests/fake_cuda/memory.h"
#include "tests/fake_cuda/stream.h"

using fake_cuda::call;
using fake_cuda::Kind;
using fake_cuda::Memory;
using fake_cuda::Range;
using fake_cuda::State;
using fake_cuda::Stream;
using fake_cuda::Streams;
using fake_cuda::unsafe_call;

namespace {

cudaError_t allocate(Kind kind, void** address, std::size_t bytes) {
  if (address == nullptr) return cudaErrorInvalidValue;
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  *address = Memory::get().allocate(kind, bytes);
  return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t release(Kind kind, void* address) {
  if (address == nullptr) return cudaSuccess;
  return Memory::get().release(kind, address) ? cudaSuccess : cudaErrorInvalidValue;
}

struct Side {
  bool known = false;  // device or pinned; all of it inside one allocation
  bool on_device = false;
};

cudaError_t look_at(const void* address, std::size_t bytes, Side& side) {
  const auto range = Memory::get().range_of(address);
  side = {range.has_value(), range && range->on_device()};
  if (!range) return cudaSuccess;
  return Memory::get().holds(address, bytes) ? cudaSuccess : cudaErrorInvalidValue;
}

bool allows(cudaMemcpyKind kind, bool to_device, bool from_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
      return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
      return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// In the stream's order. Pageable memory is read within the call, as a runtime may do though the stream has
// work before it, or has been written when the call returns.
cudaError_t copy_pageable(void* to, const void* from, std::size_t bytes, bool to_host, cudaStream_t stream) {
  const Stream* const before = Streams::get().find(stream);
  if (before == nullptr) return cudaErrorInvalidResourceHandle;
  if (!before->done(before->last())) ++State::get().pageable_copies;
  std::vector<char> staged;
  if (!to_host) staged.assign(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  const auto mark = Streams::get().enqueue(
      stream, [=, staged = std::move(staged)] { std::memcpy(to, to_host ? from : staged.data(), bytes); });
  if (!mark) return cudaErrorInvalidResourceHandle;
  if (!to_host) return cudaSuccess;
  (*mark)->wait();
  return static_cast<cudaError_t>(State::get().lost());
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream,
                 bool wait) {
  if (bytes == 0) return cudaSuccess;
  Side target, source;
  if (look_at(to, bytes, target) != cudaSuccess || look_at(from, bytes, source) != cudaSuccess ||
      !allows(kind, target.on_device, source.on_device)) {
    return cudaErrorInvalidValue;
  }
  if (!wait && (!target.known || !source.known)) return copy_pageable(to, from, bytes, !target.known, stream);
  const auto mark = Streams::get().enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  if (!mark) return cudaErrorInvalidResourceHandle;
  if (wait) (*mark)->wait();
  return wait ? static_cast<cudaError_t>(State::get().lost()) : cudaSuccess;
}

cudaError_t fill(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  Side side;
  if (look_at(address, bytes, side) != cudaSuccess || !side.known) return cudaErrorInvalidValue;
  const bool done = Streams::get().enqueue(stream, [=] { std::memset(address, value, bytes); }).has_value();
  return done ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, std::size_t bytes) {
  return unsafe_call(__func__, [&] { return allocate(Kind::device, address, bytes); });
}

cudaError_t cudaFree(void* address) {
  return unsafe_call(__func__, [&] { return release(Kind::device, address); });
}

cudaError_t cudaMallocHost(void** address, std::size_t bytes) {
  return unsafe_call(__func__, [&] { return allocate(Kind::pinned, address, bytes); });
}

cudaError_t cudaHostAlloc(void** address, std::size_t bytes, unsigned) {
  return unsafe_call(__func__, [&] { return allocate(Kind::pinned, address, bytes); });
}

cudaError_t cudaFreeHost(void* address) {
  return unsafe_call(__func__, [&] { return release(Kind::pinned, address); });
}

cudaError_t cudaHostRegister(void* address, std::size_t bytes, unsigned) {
  return unsafe_call(__func__, [&] {
    switch (Memory::get().register_host(address, bytes)) {
      case Memory::Registered::done:
        return cudaSuccess;
      case Memory::Registered::already:
        return cudaErrorHostMemoryAlreadyRegistered;
      case Memory::Registered::no_memory:
        return cudaErrorMemoryAllocation;
      case Memory::Registered::invalid:
        break;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostUnregister(void* address) {
  return unsafe_call(__func__, [&] {
    return Memory::get().unregister_host(address) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  return call(__func__, [&] {
    if (device == nullptr || !Memory::get().range_of(host)) return cudaErrorInvalidValue;
    *device = host;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call(__func__, [&] {
    if (free != nullptr) *free = Memory::get().free_bytes();
    if (total != nullptr) *total = State::get().settings().capacity;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return call(__func__, [&] {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    *attributes = {};
    void* const pointer = const_cast<void*>(address);
    const auto range = Memory::get().range_of(address);
    attributes->type = !range               ? cudaMemoryTypeUnregistered
                       : range->on_device() ? cudaMemoryTypeDevice
                                            : cudaMemoryTypeHost;
    attributes->device = range ? 0 : -2;
    attributes->devicePointer = range ? pointer : nullptr;
    attributes->hostPointer = range && range->on_device() ? nullptr : pointer;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return unsafe_call(__func__, [&] { return copy(to, from, bytes, kind, nullptr, true); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call(__func__, [&] { return copy(to, from, bytes, kind, stream, false); });
}

cudaError_t cudaMemset(void* address, int value, std::size_t bytes) {
  return unsafe_call(__func__, [&] { return fill(address, value, bytes, nullptr); });
}

cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream) {
  return call(__func__, [&] { return fill(address, value, bytes, stream); });
}
}
