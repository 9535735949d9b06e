// Page-locked host memory of exact size: anonymous pages, near the device, registered with CUDA.
#pragma once

#include "src/device/cuda/check.h"
#include "src/device/topology.h"

namespace stowage::cuda {

// Zeroed, by the kernel alone. Huge pages are advised, and faulted in by parallel loops. `binder` may not
// know a near node: then pages go where the kernel puts them. Throws OutOfMemory when the host has no more or
// may not lock more, DeviceError.
void* pin(Bytes bytes, const MemoryBinder& binder, const Doing& doing);

// The work on it is done. When this throws, the memory is still there.
void unpin(void* address, Bytes bytes, const Doing& doing);

}  // namespace stowage::cuda
