// Memory of the engine's own through which values pass between host and device, beside the plan's.
#pragma once

#include "stowage/device.h"
#include "stowage/error.h"

namespace stowage {

// Page-locked; where that fails, ordinary memory if `pageable_fallback` (EngineOptions), which is slower and
// nothing else. Throws OutOfMemory.
inline DeviceMemory staging_memory(Device& device, Bytes bytes, bool pageable_fallback) {
  try {
    return DeviceMemory(device, MemoryKind::pinned, bytes);
  } catch (const OutOfMemory&) {
    if (!pageable_fallback) throw;
    return DeviceMemory(device, MemoryKind::pageable, bytes);
  }
}

}  // namespace stowage
