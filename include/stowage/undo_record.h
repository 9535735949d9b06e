// The size of what takes back an update that began before the gate: planners make room for it, and kernels
// write it (launch_table.h).
#pragma once

#include <cstdint>

#include "stowage/bytes.h"

namespace stowage {

// Bytes of the undo record of an update of so many elements: for each tile of undo_tile, 64 bytes, and 2
// bytes for each element, rounded up to a multiple of 64.
inline constexpr std::int64_t undo_tile = 2048;
constexpr Bytes undo_record_bytes(std::int64_t elements) {
  constexpr std::int64_t line = 64;
  const auto of_tile = [](std::int64_t count) { return line + (2 * count + line - 1) / line * line; };
  const std::int64_t rest = elements % undo_tile;
  return static_cast<Bytes>(elements / undo_tile * of_tile(undo_tile) + (rest == 0 ? 0 : of_tile(rest)));
}

}  // namespace stowage
