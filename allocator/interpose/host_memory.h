// Memory of the host, mapped into the device's address space: by the driver's virtual memory management where
// it has host memory for that, else by cuMemHostAlloc.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>

namespace stowage::interpose {

// What is there of it; empty at first, and again once all was given back.
struct HostMemory {
  CUdeviceptr address = 0;  // for the device
  std::size_t bytes = 0;
  void* pinned = nullptr;       // from cuMemHostAlloc; null: mapped
  CUcontext context = nullptr;  // which takes `pinned` along
  CUmemGenericAllocationHandle handle = 0;
  bool reserved = false, created = false, mapped = false;

  bool empty() const { return pinned == nullptr && !reserved && !created; }
};

// Where the memory comes from: the host's node next to the device, any node, or page-locked memory of the
// current context, which goes with that.
enum class HostSource { nearest_node, any_node, pinned };
inline constexpr std::array<HostSource, 3> host_sources = {HostSource::nearest_node, HostSource::any_node,
                                                           HostSource::pinned};

// A power of two, of which all sizes are multiples.
inline constexpr std::size_t host_granule = std::size_t{2} << 20;

// Takes `bytes` for `device`, where a context of it is current. Not CUDA_SUCCESS: `memory` is what is left to
// give back.
CUresult take_host_memory(HostSource source, CUdevice device, std::size_t bytes, HostMemory& memory);

// False where the driver fails: then `memory` is what is still there, and may be given back again. Nothing
// may use it any more.
bool give_back(HostMemory& memory);

}  // namespace stowage::interpose
