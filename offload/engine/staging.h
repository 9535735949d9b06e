// Copies between ordinary host memory and the device, through page-locked memory that is taken for the
// copy and given back. For values outside of steps: it allocates, and it waits.
#pragma once

#include <cstddef>
#include <span>

#include "offload/engine/lanes.h"

namespace stowage {

class Staging {
 public:
  // Both must outlive it.
  Staging(Device& device, Lanes& lanes) : device_(device), lanes_(lanes) {}

  // Nothing that touches the device bytes may be in flight. Throw DeviceError, OutOfMemory.
  void upload(std::byte* device, std::span<const std::byte> value);
  void download(std::span<std::byte> value, const std::byte* device);

 private:
  void copy_and_wait(LaneRole role, void* to, const void* from, Bytes bytes);

  Device& device_;
  Lanes& lanes_;
};

}  // namespace stowage
