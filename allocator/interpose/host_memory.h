// Memory of the host, mapped into the device's address space: by the driver's virtual memory management where
// it has host memory for that, else by cuMemHostAlloc.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>

namespace stowage::interpose {

// The parts of a chunk that exist. The struct is empty at first, and again once all parts were given back.
struct HostMemory {
  CUdeviceptr address = 0;  // address for the device
  std::size_t bytes = 0;
  void* pinned = nullptr;       // the address from cuMemHostAlloc; null: the memory is mapped
  CUcontext context = nullptr;  // the context that `pinned` ends with
  CUmemGenericAllocationHandle handle = 0;
  bool reserved = false, created = false, mapped = false;

  bool empty() const { return pinned == nullptr && !reserved && !created; }
};

// Sources of memory: the host's node next to the device, any node, or page-locked memory of the current
// context, which goes with the context.
enum class HostSource { nearest_node, any_node, pinned };
inline constexpr std::array<HostSource, 3> host_sources = {HostSource::nearest_node, HostSource::any_node,
                                                           HostSource::pinned};

// Sizes are multiples of this power of two.
inline constexpr std::size_t host_granule = std::size_t{2} << 20;

// Takes `bytes` for `device`, a context of which is current. If that fails, the caller gives `memory` back.
CUresult take_host_memory(HostSource source, CUdevice device, std::size_t bytes, HostMemory& memory);

// Returns false if the driver fails: then `memory` is what is still there, and may be given back again.
// REQUIRES: nothing uses it any more.
bool give_back(HostMemory& memory);

}  // namespace stowage::interpose
