// Moments in fewer bytes than f32 (moments.h), and conversions to f32 and back. Calls run on the calling
// thread. Any range of whole tiles gives the same bits, on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/math/bfloat16.h"
#include "kernels/math/philox.h"
#include "stowage/moments.h"
#include "stowage/undo_record.h"

namespace stowage::cpu {

// First moments are rounded to the nearest, second moments by chance (rounded_by_chance).
struct Bf16Moments {
  Bfloat16 *first, *second;
  RandomStream rounding;
};
// Moments in blocks of moment_block elements; the scales are the blocks' largest magnitudes.
struct EightBitMoments {
  std::uint8_t *first, *second;
  float *first_scales, *second_scales;
};

// One tile's moments.
struct MomentTile {
  alignas(64) float first[undo_tile];
  alignas(64) float second[undo_tile];
};

// Convert elements [begin, begin + count) of a tensor. Require that count <= undo_tile and that `begin` is a
// multiple of undo_tile.
void decode(const Bf16Moments& from, std::int64_t begin, std::int64_t count, MomentTile& to);
void decode(const EightBitMoments& from, std::int64_t begin, std::int64_t count, MomentTile& to);
void encode(const MomentTile& from, std::int64_t begin, std::int64_t count, const Bf16Moments& to);
void encode(const MomentTile& from, std::int64_t begin, std::int64_t count, const EightBitMoments& to);
// Whether the tile's first `count` moments are all finite.
bool is_finite(const MomentTile& tile, std::int64_t count);

// Copy moments into a record as they are, and back. Both return the end of the copy.
std::byte* save(const Bf16Moments& from, std::int64_t begin, std::int64_t count, std::byte* to);
std::byte* save(const EightBitMoments& from, std::int64_t begin, std::int64_t count, std::byte* to);
const std::byte* restore(const Bf16Moments& to, std::int64_t begin, std::int64_t count,
                         const std::byte* from);
const std::byte* restore(const EightBitMoments& to, std::int64_t begin, std::int64_t count,
                         const std::byte* from);

}  // namespace stowage::cpu
