#include "src/device/cuda/memory.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include "src/base/parallel_for.h"
#include "stowage/error.h"

namespace stowage::cuda {
namespace {

[[noreturn]] void refuse(std::string_view call, Bytes bytes, const Doing& doing) {
  throw OutOfMemory(
      fmt::format("{}: {} of {} bytes of host memory failed: the host has no more, or its driver locks no "
                  "more; ask for less",
                  doing.function, call, bytes),
      bytes, 0);
}

// Faults the pages in on the program's threads. If the kernel cannot (before Linux 5.14) or has no memory,
// cudaHostRegister does it on this thread or reports the error.
void fault_in(void* address, Bytes bytes) {
  constexpr std::int64_t chunk = 64 << 20;
  parallel_for(static_cast<std::int64_t>(bytes), chunk, [&](std::int64_t begin, std::int64_t end) {
    madvise(static_cast<std::byte*>(address) + begin, static_cast<Bytes>(end - begin), MADV_POPULATE_WRITE);
  });
}

}  // namespace

void* map_pageable(Bytes bytes, const MemoryBinder& binder, const Doing& doing) {
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) refuse("mmap", bytes, doing);
  madvise(address, bytes, MADV_HUGEPAGE);  // advice only, like the binding: failures do not matter
  binder.bind(address, bytes);
  return address;
}

void* pin(Bytes bytes, const MemoryBinder& binder, const Doing& doing) {
  void* const address = map_pageable(bytes, binder, doing);
  fault_in(address, bytes);
  const cudaError_t registered = cudaHostRegister(address, bytes, cudaHostRegisterPortable);
  if (registered == cudaSuccess) return address;
  munmap(address, bytes);
  if (registered == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    refuse("cudaHostRegister", bytes, doing);
  }
  fail(registered, "cudaHostRegister", doing);
}

void unpin(void* address, Bytes bytes, const Doing& doing) {
  check(cudaHostUnregister(address), "cudaHostUnregister", doing);
  munmap(address, bytes);
}

}  // namespace stowage::cuda
