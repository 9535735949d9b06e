// Arena: one device region of exact size, addressed by offset, as a plan lays it out.
//
// Owns its memory, unless it is a part of another arena; the device, or that arena, must outlive it, and its
// work must be synchronised before it dies.
// Not thread-safe, but `at` may be called from any thread.
#pragma once

#include <cstddef>
#include <span>

#include "stowage/device.h"

namespace stowage {

class Arena {
 public:
  Arena() = default;  // makes an empty arena
  // Throws OutOfMemory when the device cannot hold `bytes`. 0 bytes: an empty arena, no allocation.
  Arena(Device& device, Bytes bytes);
  // A part of `whole`, from `offset` on; throws InvalidInput unless it lies inside.
  Arena(const Arena& whole, Bytes offset, Bytes bytes) : part_(whole.at(offset, bytes), bytes) {}

  Bytes bytes() const { return part_.empty() ? memory_.bytes() : part_.size(); }
  // The address of [offset, offset + bytes). Throws InvalidInput unless that lies inside.
  std::byte* at(Bytes offset, Bytes bytes) const;

 private:
  DeviceMemory memory_;
  std::span<std::byte> part_;  // of another arena; empty unless it is one
};

}  // namespace stowage
