// Compiled with contraction off: the device must give the same bits.
#include "kernels/cpu/compact_moments.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/clones.h"
#include "kernels/math/moment_codes.h"

namespace stowage::cpu {
namespace {

// Keys: the upper 16 bits of a share, from 2^-26, below which there is no boundary, to 1. Two neighbouring
// keys have at most one boundary between them, so a share's code is found in two look-ups and a comparison,
// in vectors too.
constexpr std::int32_t first_key = (127 - 26) << 7, last_key = 127 << 7;
constexpr std::int32_t keys = last_key - first_key + 1;

template <int bits>
struct CodesByKey {
  std::int32_t code[keys] = {};  // code of the least share with the key
  float boundary[keys] = {};     // the boundary behind that code

  constexpr CodesByKey() {
    int at = 0;
    for (std::int32_t key = 0; key < keys; ++key) {
      const float least = std::bit_cast<float>(static_cast<std::uint32_t>(first_key + key) << 16U);
      while (boundary_of_code(bits, at) < least) ++at;
      code[key] = at;
      boundary[key] = boundary_of_code(bits, at);
    }
  }
};
constexpr CodesByKey<first_moment_bits> first_codes;
constexpr CodesByKey<second_moment_bits> second_codes;

// Shares by code; a first moment's share has its sign.
struct SharesByCode {
  float first[256] = {}, second[256] = {};

  constexpr SharesByCode() {
    for (int code = 0; code < 256; ++code) {
      first[code] = (code < 128 ? 1.0F : -1.0F) * share_of_code(first_moment_bits, code % 128);
      second[code] = share_of_code(second_moment_bits, code);
    }
  }
};
constexpr SharesByCode shares;

// Compute first_moment_of and second_moment_of.
STOWAGE_CLONES void decode_first(std::int64_t count, const std::uint8_t* codes, float largest, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = shares.first[codes[i]] * largest;
}
STOWAGE_CLONES void decode_second(std::int64_t count, const std::uint8_t* codes, float largest, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = shares.second[codes[i]] * largest;
}

STOWAGE_CLONES std::uint32_t largest_magnitude(std::int64_t count, const float* values) {
  std::uint32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_bits(values[i]));
  return largest;
}

// Finds the codes of a block's magnitudes. Several short loops, which compilers vectorise.
template <int bits>
[[gnu::always_inline]] inline void find_codes(const CodesByKey<bits>& by_key, std::int64_t count,
                                              const float* magnitudes, float largest, std::int32_t* codes) {
  float ratios[moment_block];
  std::int32_t of_keys[moment_block];
  for (std::int64_t i = 0; i < count; ++i) ratios[i] = magnitudes[i] / largest;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t upper = std::bit_cast<std::int32_t>(ratios[i]) >> 16;
    of_keys[i] = std::min(std::max(upper, first_key), last_key) - first_key;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t key = of_keys[i];
    codes[i] = by_key.code[key] + (by_key.boundary[key] < ratios[i] ? 1 : 0);
  }
}

// Compute first_moment_code and second_moment_code.
STOWAGE_CLONES void encode_first(std::int64_t count, const float* from, float largest, std::uint8_t* to) {
  float magnitudes[moment_block];
  std::int32_t codes[moment_block];
  for (std::int64_t i = 0; i < count; ++i) magnitudes[i] = std::bit_cast<float>(magnitude_bits(from[i]));
  find_codes(first_codes, count, magnitudes, largest, codes);
  for (std::int64_t i = 0; i < count; ++i) codes[i] |= codes[i] > 0 && from[i] < 0 ? 128 : 0;
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(codes[i]);
}
STOWAGE_CLONES void encode_second(std::int64_t count, const float* from, float largest, std::uint8_t* to) {
  std::int32_t codes[moment_block];
  find_codes(second_codes, count, from, largest, codes);
  for (std::int64_t i = 0; i < count; ++i) codes[i] = std::max(codes[i], from[i] > 0 ? 1 : 0);
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<std::uint8_t>(codes[i]);
}

using DecodeBlock = void (*)(std::int64_t, const std::uint8_t*, float, float*);
void decode_blocks(std::int64_t count, const std::uint8_t* codes, const float* scales,
                   DecodeBlock decode_block, float* to) {
  for (std::int64_t i = 0; i < count; i += moment_block)
    decode_block(std::min(moment_block, count - i), codes + i, scales[i / moment_block], to + i);
}

using EncodeBlock = void (*)(std::int64_t, const float*, float, std::uint8_t*);
void encode_blocks(std::int64_t count, const float* from, EncodeBlock encode_block, std::uint8_t* codes,
                   float* scales) {
  for (std::int64_t i = 0; i < count; i += moment_block) {
    const std::int64_t size = std::min(moment_block, count - i);
    const float largest = std::bit_cast<float>(largest_magnitude(size, from + i));
    scales[i / moment_block] = largest;
    if (largest == 0) {
      std::fill_n(codes + i, size, std::uint8_t{0});
    } else {
      encode_block(size, from + i, largest, codes + i);
    }
  }
}

STOWAGE_CLONES void widen(std::int64_t count, const Bfloat16* from, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}
STOWAGE_CLONES void round_to_nearest(std::int64_t count, const float* from, Bfloat16* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = Bfloat16(from[i]);
}

// Computes rounding_draw for the elements 8 first … 8 (first + count) - 1 of a parameter.
STOWAGE_CLONES void draw_groups(const RandomStream& stream, std::uint64_t first, std::int32_t count,
                                std::uint16_t* draws) {
  std::uint32_t words[4][undo_tile / 8 + 1];
  for (std::int32_t group = 0; group < count; ++group) {
    const auto four = random_words(stream, first + static_cast<std::uint64_t>(group));
    for (int word = 0; word < 4; ++word) words[word][group] = four.v[word];
  }
  for (std::int32_t group = 0; group < count; ++group) {
    for (int k = 0; k < 8; ++k)
      draws[8 * group + k] = static_cast<std::uint16_t>(words[k / 2][group] >> (k % 2 == 0 ? 0 : 16));
  }
}

STOWAGE_CLONES void round_up_by(std::int64_t count, const float* from, const std::uint16_t* draws,
                                Bfloat16* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = rounded_by_chance(from[i], draws[i]);
}

// `begin`: the number of the first element in its parameter.
void round_by_chance(const RandomStream& stream, std::uint64_t begin, std::int64_t count, const float* from,
                     Bfloat16* to) {
  std::uint16_t draws[undo_tile + 16];
  const std::uint64_t first = begin / 8, last = (begin + static_cast<std::uint64_t>(count) + 7) / 8;
  draw_groups(stream, first, static_cast<std::int32_t>(last - first), draws);
  round_up_by(count, from, draws + begin % 8, to);
}

template <class Value>
std::byte* put(std::byte* to, const Value* from, std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Value);
  std::memcpy(to, from, bytes);
  return to + bytes;
}
template <class Value>
const std::byte* take(const std::byte* from, Value* to, std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(Value);
  std::memcpy(to, from, bytes);
  return from + bytes;
}

}  // namespace

void decode(const Bf16Moments& from, std::int64_t begin, std::int64_t count, MomentTile& to) {
  widen(count, from.first + begin, to.first);
  widen(count, from.second + begin, to.second);
}
void decode(const EightBitMoments& from, std::int64_t begin, std::int64_t count, MomentTile& to) {
  const std::int64_t block = begin / moment_block;
  decode_blocks(count, from.first + begin, from.first_scales + block, decode_first, to.first);
  decode_blocks(count, from.second + begin, from.second_scales + block, decode_second, to.second);
}

void encode(const MomentTile& from, std::int64_t begin, std::int64_t count, const Bf16Moments& to) {
  round_to_nearest(count, from.first, to.first + begin);
  round_by_chance(to.rounding, to.rounding.first + static_cast<std::uint64_t>(begin), count, from.second,
                  to.second + begin);
}
void encode(const MomentTile& from, std::int64_t begin, std::int64_t count, const EightBitMoments& to) {
  const std::int64_t block = begin / moment_block;
  encode_blocks(count, from.first, encode_first, to.first + begin, to.first_scales + block);
  encode_blocks(count, from.second, encode_second, to.second + begin, to.second_scales + block);
}

bool is_finite(const MomentTile& tile, std::int64_t count) {
  constexpr std::uint32_t infinity = 0x7f800000U;
  return largest_magnitude(count, tile.first) < infinity && largest_magnitude(count, tile.second) < infinity;
}

std::byte* save(const Bf16Moments& from, std::int64_t begin, std::int64_t count, std::byte* to) {
  return put(put(to, from.first + begin, count), from.second + begin, count);
}
std::byte* save(const EightBitMoments& from, std::int64_t begin, std::int64_t count, std::byte* to) {
  const std::int64_t block = begin / moment_block, blocks = moment_blocks(count);
  to = put(put(to, from.first_scales + block, blocks), from.second_scales + block, blocks);
  return put(put(to, from.first + begin, count), from.second + begin, count);
}
const std::byte* restore(const Bf16Moments& to, std::int64_t begin, std::int64_t count,
                         const std::byte* from) {
  return take(take(from, to.first + begin, count), to.second + begin, count);
}
const std::byte* restore(const EightBitMoments& to, std::int64_t begin, std::int64_t count,
                         const std::byte* from) {
  const std::int64_t block = begin / moment_block, blocks = moment_blocks(count);
  from = take(take(from, to.first_scales + block, blocks), to.second_scales + block, blocks);
  return take(take(from, to.first + begin, count), to.second + begin, count);
}

}  // namespace stowage::cpu
