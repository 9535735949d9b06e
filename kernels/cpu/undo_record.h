// Record that undoes AdamW's update of a tile, bit for bit.
//
// The values before an update can be computed from the values behind it and the gradient, up to a few units
// in the last place: m = (m' - (1 - beta1) g) / beta1, and so on. A record keeps these units: the difference
// between the bits of the old value and of the computed one, as integers, takes 4 bits if it lies within
// [-7, 7]. Otherwise the 4 bits hold an escape code and the old value stands in a list of exceptions. Every
// bit of the old values thus comes back, whatever they were, as long as the computation gives the same bits
// each time.
//
// A record is a row of tiles of fixed room:
//
//     header | m: 4 bits each | v | weight | exceptions of m | of v | of the weight | unused
//
// Byte k of a plane of 4 bits holds element k (low half) and element k + ceil(n / 2) of the tile's n
// elements. Exceptions stand in the order of the elements. The format does not depend on the width of a
// vector register.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "include/stowage/undo_record.h"
#include "src/base/parallel_for.h"
#include "stowage/launch_table.h"

namespace stowage::cpu {

// Elements of a tile. A tile's operands in f32 are 32 KiB: they are still in the first-level cache, or just
// behind it, if the tile must be undone at once.
using stowage::undo_tile;

// The values that a record restores, in the order of its planes.
enum class Restored { first_moment, second_moment, parameter };
inline constexpr int restored_values = 3;

// Differences as they are stored: -7 … 7 as 0 … 14.
inline constexpr std::uint32_t code_of_zero = 7;
inline constexpr std::uint32_t escape_code = 15;

// A tile's residues during the computation, with room for a whole vector behind the last element.
struct TileResidues {
  static constexpr std::int64_t most_lanes = 16;
  alignas(64) std::uint8_t codes[restored_values][undo_tile + most_lanes];
  alignas(64) std::uint32_t exceptions[restored_values][undo_tile + most_lanes];
  std::int64_t exception_count[restored_values];
  // The piece of the record that the thread writes or reads next: it is fetched into the cache on the way.
  const std::byte* soon;
};

// Bytes of a tile of `count` <= undo_tile elements in a record. They need no alignment.
std::int64_t undo_tile_bytes(std::int64_t count);
// Writes that the tile was not updated.
void write_untouched(std::byte* tile);
// Writes that the tile was updated; the values that undo it stand behind the record's first line of 64 bytes.
void write_updated(std::byte* tile);
// Writes the residues. Returns false if they exceed the room; the tile then says that it was not updated.
bool write_residues(std::int64_t count, const TileResidues& residues, std::byte* tile);
// Whether the tile was updated, so that `read_residues` gives the residues that undo it.
bool was_updated(const std::byte* tile);
void read_residues(std::int64_t count, const std::byte* tile, TileResidues& residues);

// Calls body(begin, count) for each tile of `count` elements, on any thread.
template <class Body>
void for_each_tile(std::int64_t count, const Body& body) {
  // A chunk has as many elements as adamw gives a thread at once.
  constexpr std::int64_t tiles_of_a_chunk = 8;
  parallel_for(count, tiles_of_a_chunk * undo_tile, [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += undo_tile) body(begin, std::min(undo_tile, end - begin));
  });
}

}  // namespace stowage::cpu
