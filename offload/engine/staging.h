// Copies values between ordinary host memory and the device outside of steps, through page-locked memory: a
// spare range of the plan's memory if there is one, so that a tight host budget stays enough; else memory
// that is allocated for the copy. Each copy waits until it is done.
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
  // All arguments must outlive the object. `spare` is memory for transfers whose contents nobody needs
  // between steps. A spare range of 256 KiB or more is used for every value, a smaller one for values that
  // fit into it. `pageable_fallback`: as for staging_memory.
  Staging(Device& device, Lanes& lanes, std::span<std::byte> spare, bool pageable_fallback)
      : device_(device), lanes_(lanes), spare_(spare), pageable_fallback_(pageable_fallback) {}

  // Require that nothing that touches the device bytes is in flight. Throw DeviceError and OutOfMemory.
  void upload(std::byte* device, std::span<const std::byte> value);
  void download(std::span<std::byte> value, const std::byte* device);
  // `piece` makes the value part by part in the memory that it is copied from; each part begins at a multiple
  // of 64 bytes.
  using FillPiece = std::function<void(Bytes offset, std::span<std::byte> piece)>;
  void upload(std::byte* device, Bytes bytes, const FillPiece& piece);

 private:
  // Returns the spare range, or allocates `owned` for as much of the value as is copied at once.
  std::span<std::byte> take(DeviceMemory& owned, Bytes value_bytes);
  void copy_and_wait(LaneRole role, void* to, const void* from, Bytes bytes);

  Device& device_;
  Lanes& lanes_;
  std::span<std::byte> spare_;
  const bool pageable_fallback_;
};

}  // namespace stowage
