// Host memory of exact size: anonymous pages, near the device; page-locked where CUDA registers them.
#pragma once

#include "src/device/cuda/check.h"
#include "src/device/topology.h"

namespace stowage::cuda {

// Zeroed, by the kernel alone. Huge pages are advised. `binder` may not know a near node: then pages go where
// the kernel puts them. They come when they are touched. munmap gives them back. Throws OutOfMemory.
void* map_pageable(Bytes bytes, const MemoryBinder& binder, const Doing& doing);

// The same, faulted in by parallel loops and page-locked. Throws OutOfMemory when the host has no more or
// CUDA may not lock more, DeviceError.
void* pin(Bytes bytes, const MemoryBinder& binder, const Doing& doing);

// The work on it is done. When this throws, the memory is still there.
void unpin(void* address, Bytes bytes, const Doing& doing);

}  // namespace stowage::cuda
