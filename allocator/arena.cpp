#include "allocator/arena.h"

#include <fmt/core.h>

#include "stowage/error.h"

namespace stowage {

Arena::Arena(Device& device, Bytes bytes) {
  if (bytes > 0) memory_ = DeviceMemory(device, MemoryKind::device, bytes);
}

std::byte* Arena::at(Bytes offset, Bytes bytes) const {
  if (offset > this->bytes() || bytes > this->bytes() - offset)
    throw InvalidInput(
        fmt::format("arena: {} bytes at offset {} asked of {}; keep the range inside the arena", bytes,
                    offset, this->bytes()));
  return (part_.empty() ? memory_.data() : part_.data()) + offset;
}

}  // namespace stowage
