// The record from which one tile of AdamW's update is undone, bit for bit.
//
// The values before an update can be computed from those behind it and the gradient, but for a few units in
// the last place: m = (m' - (1 - beta1) g) / beta1, and so on. A record keeps these units: the difference
// between the bits of the old value and those of the computed one, as integers, takes 4 bits if it lies
// within [-7, 7]. Otherwise the 4 bits hold an escape code and the old value stands in a list of exceptions.
// So every bit of the old values comes back, whatever they were, as long as the computation gives the same
// bits each time.
//
// A record is a row of tiles of fixed room:
//
//     header | m: 4 bits each | v | weight | exceptions of m | of v | of the weight | unused
//
// In a plane of 4 bits, byte k holds element k (low half) and element k + ceil(n / 2) of the tile's n
// elements. Exceptions stand in the order of the elements. Nothing in it depends on the width of a vector
// register.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "include/stowage/undo_record.h"
#include "src/base/parallel_for.h"
#include "stowage/launch_table.h"

namespace stowage::cpu {

// Elements. In f32 a tile's operands are 32 KiB: they are in the first-level cache, or just behind it, if a
// tile must be taken back at once.
using stowage::undo_tile;

// The values that a record restores, in the order of its planes.
enum class Restored { first_moment, second_moment, parameter };
inline constexpr int restored_values = 3;

// Differences as they are stored: -7 … 7 as 0 … 14.
inline constexpr std::uint32_t code_of_zero = 7;
inline constexpr std::uint32_t escape_code = 15;

// A tile's residues while it is computed on. Room for a whole vector behind the last element.
struct TileResidues {
  static constexpr std::int64_t most_lanes = 16;
  alignas(64) std::uint8_t codes[restored_values][undo_tile + most_lanes];
  alignas(64) std::uint32_t exceptions[restored_values][undo_tile + most_lanes];
  std::int64_t exception_count[restored_values];
  // The piece of the record that the thread writes or reads next: it is fetched into the cache on the way.
  const std::byte* soon;
};

// A tile of `count` <= undo_tile elements in a record. The bytes need no alignment.
std::int64_t undo_tile_bytes(std::int64_t count);
// The tile was not updated.
void write_untouched(std::byte* tile);
// The tile was updated; what takes it back stands behind the record's first line of 64 bytes.
void write_updated(std::byte* tile);
// False if the residues exceed the room; the tile then says that it was not updated.
bool write_residues(std::int64_t count, const TileResidues& residues, std::byte* tile);
// Whether it was updated, so that `read_residues` gives what takes it back.
bool was_updated(const std::byte* tile);
void read_residues(std::int64_t count, const std::byte* tile, TileResidues& residues);

// Calls body(begin, count) for each tile of `count` elements, on any thread.
template <class Body>
void for_each_tile(std::int64_t count, const Body& body) {
  constexpr std::int64_t tiles_of_a_chunk = 8;  // as many elements as adamw gives a thread at once
  parallel_for(count, tiles_of_a_chunk * undo_tile, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += undo_tile) body(begin, std::min(undo_tile, end - begin));
  });
}

}  // namespace stowage::cpu
