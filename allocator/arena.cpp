#include "allocator/arena.h"

#include <fmt/core.h>

#include "stowage/error.h"

namespace stowage {

Arena::Arena(Device& device, Bytes bytes) {
  if (bytes == 0) return;
  memory_ = DeviceMemory(device, MemoryKind::device, bytes);
  base_ = memory_.data();
  bytes_ = bytes;
}

std::byte* Arena::at(Bytes offset, Bytes bytes) const {
  if (offset > this->bytes() || bytes > this->bytes() - offset)
    throw InvalidInput(
        fmt::format("arena: {} bytes at offset {} asked of {}; keep the range inside the arena", bytes,
                    offset, this->bytes()));
  return base_ + offset;
}

}  // namespace stowage
