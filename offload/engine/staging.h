// Copies between ordinary host memory and the device, through page-locked memory: a spare range of
// the plan's own where there is one, so that a host budget that is just enough stays enough; else
// memory that is taken for the copy and given back. For values outside of steps: it waits.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "offload/engine/lanes.h"
#include "stowage/device.h"
#include "stowage/error.h"

namespace stowage {

// Returns memory of the engine's own, beside the plan's, through which values pass between host and device:
// page-locked or, where that fails and `pageable_fallback` (EngineOptions) is set, ordinary memory, which is
// only slower. Throws OutOfMemory.
inline DeviceMemory staging_memory(Device& device, Bytes bytes, bool pageable_fallback) {
  try {
    return DeviceMemory(device, MemoryKind::pinned, bytes);
  } catch (const OutOfMemory&) {
    if (!pageable_fallback) throw;
    return DeviceMemory(device, MemoryKind::pageable, bytes);
  }
}

class Staging {
 public:
  // All must outlive it. `spare` is memory for transfers whose contents nobody needs between steps; it is
  // used for values that it holds whole, and from 256 KiB up for all. `pageable_fallback`: as for
  // staging_memory.
  Staging(Device& device, Lanes& lanes, std::span<std::byte> spare, bool pageable_fallback)
      : device_(device), lanes_(lanes), spare_(spare), pageable_fallback_(pageable_fallback) {}

  // Nothing that touches the device bytes may be in flight. Throw DeviceError, OutOfMemory.
  void upload(std::byte* device, std::span<const std::byte> value);
  void download(std::span<std::byte> value, const std::byte* device);
  // `piece` makes the value, part by part, where it is copied from; each begins at a multiple of 64 bytes.
  using FillPiece = std::function<void(Bytes offset, std::span<std::byte> piece)>;
  void upload(std::byte* device, Bytes bytes, const FillPiece& piece);

 private:
  // The spare range, or `owned` made to hold as much of the value as is copied at once.
  std::span<std::byte> take(DeviceMemory& owned, Bytes value_bytes);
  void copy_and_wait(LaneRole role, void* to, const void* from, Bytes bytes);

  Device& device_;
  Lanes& lanes_;
  std::span<std::byte> spare_;
  const bool pageable_fallback_;
};

}  // namespace stowage
