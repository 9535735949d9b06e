// Arena: one device region of exact size, addressed by offset, as a plan lays it out.
//
// Owns its memory, unless it is a part of another arena; the device, or that arena, must outlive it, and its
// work must be synchronised before it dies.
// Not thread-safe, but `at` may be called from any thread.
#pragma once

#include <cstddef>

#include "stowage/device.h"

namespace stowage {

class Arena {
 public:
  Arena() = default;  // makes an empty arena
  // Throws OutOfMemory when the device cannot hold `bytes`. 0 bytes: an empty arena, no allocation.
  Arena(Device& device, Bytes bytes);
  // A part of `whole`, from `offset` on; throws InvalidInput unless it lies inside.
  Arena(const Arena& whole, Bytes offset, Bytes bytes) : base_(whole.at(offset, bytes)), bytes_(bytes) {}

  Bytes bytes() const { return bytes_; }
  // The address of [offset, offset + bytes). Throws InvalidInput unless that lies inside.
  std::byte* at(Bytes offset, Bytes bytes) const;

 private:
  DeviceMemory memory_;
  std::byte* base_ = nullptr;
  Bytes bytes_ = 0;
};

}  // namespace stowage
