// Sizes of the undo record, which undoes an update that began before the gate. Planners make room for it, and
// kernels write it (launch_table.h).
#pragma once

#include <cstdint>

#include "stowage/bytes.h"
#include "stowage/moments.h"

namespace stowage {

// Bytes of the undo record of an update of `elements`: for each tile of undo_tile elements 64 bytes, and 2
// bytes for each element, rounded up to a multiple of 64.
inline constexpr std::int64_t undo_tile = 2048;
constexpr Bytes undo_record_bytes(std::int64_t elements) {
  constexpr std::int64_t line = 64;
  const auto of_tile = [](std::int64_t count) { return line + (2 * count + line - 1) / line * line; };
  const std::int64_t rest = elements % undo_tile;
  return static_cast<Bytes>(elements / undo_tile * of_tile(undo_tile) + (rest == 0 ? 0 : of_tile(rest)));
}

// Same if moments are not f32 but have `moment_bytes` for each element (bf16: 2; 8-bit codes: 1). A rounded
// moment cannot be computed back, so the record holds the old values themselves: `weight_bytes` of the master
// weight (6 with f16 parameters, else 4), both moments, and the scales of 8-bit moments.
constexpr Bytes value_record_bytes(std::int64_t elements, std::int64_t moment_bytes,
                                   std::int64_t weight_bytes = 4) {
  constexpr std::int64_t line = 64;
  const auto of_tile = [&](std::int64_t count) {
    const std::int64_t scales = moment_bytes == 1 ? moment_blocks(count) : 0;
    return line + ((weight_bytes + 2 * moment_bytes) * count + 8 * scales + line - 1) / line * line;
  };
  const std::int64_t rest = elements % undo_tile;
  return static_cast<Bytes>(elements / undo_tile * of_tile(undo_tile) + (rest == 0 ? 0 : of_tile(rest)));
}

}  // namespace stowage
