#include "kernels/cpu/undo_record.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/clones.h"

namespace stowage::cpu {
namespace {

constexpr std::int64_t line = 64;  // bytes of a cache line: no two tiles share one if the record is aligned

struct Header {
  std::uint16_t exception_count[restored_values];
  std::uint16_t updated;
};

std::int64_t plane_bytes(std::int64_t count) { return (count + 1) / 2; }

std::int64_t room(std::int64_t count) { return (2 * count + line - 1) / line * line; }

STOWAGE_CLONES void pack(std::int64_t half, const std::uint8_t* codes, std::uint8_t* packed) {
  for (std::int64_t k = 0; k < half; ++k) {
    packed[k] = static_cast<std::uint8_t>(codes[k] | (codes[k + half] << 4));
  }
}

STOWAGE_CLONES void unpack(std::int64_t half, const std::uint8_t* packed, std::uint8_t* codes) {
  for (std::int64_t k = 0; k < half; ++k) {
    codes[k] = packed[k] & 15;
    codes[k + half] = packed[k] >> 4;
  }
}

template <class To, class From>
To* as(From* bytes) {
  return reinterpret_cast<To*>(bytes);
}

}  // namespace

std::int64_t undo_tile_bytes(std::int64_t count) {
  return static_cast<std::int64_t>(undo_record_bytes(count));
}

bool was_updated(const std::byte* tile) {
  Header header;
  std::memcpy(&header, tile, sizeof(header));
  return header.updated != 0;
}

void write_untouched(std::byte* tile) {
  const Header header{};
  std::memcpy(tile, &header, sizeof(header));
}

void write_updated(std::byte* tile) {
  const Header header{{}, 1};
  std::memcpy(tile, &header, sizeof(header));
}

bool write_residues(std::int64_t count, const TileResidues& residues, std::byte* tile) {
  std::int64_t exceptions = 0;
  for (const std::int64_t each : residues.exception_count) exceptions += each;
  const std::int64_t plane = plane_bytes(count);
  if (restored_values * plane + exceptions * std::int64_t{sizeof(std::uint32_t)} > room(count)) {
    write_untouched(tile);
    return false;
  }
  Header header{{}, 1};
  std::byte* next = tile + line;
  for (const auto& codes : residues.codes) {
    pack(plane, codes, as<std::uint8_t>(next));
    next += plane;
  }
  for (int value = 0; value < restored_values; ++value) {
    const std::int64_t listed = residues.exception_count[value];
    const std::size_t bytes = static_cast<std::size_t>(listed) * sizeof(std::uint32_t);
    std::memcpy(next, residues.exceptions[value], bytes);
    next += bytes;
    header.exception_count[value] = static_cast<std::uint16_t>(listed);
  }
  std::memcpy(tile, &header, sizeof(header));
  return true;
}

void read_residues(std::int64_t count, const std::byte* tile, TileResidues& residues) {
  Header header;
  std::memcpy(&header, tile, sizeof(header));
  const std::int64_t plane = plane_bytes(count);
  const std::byte* next = tile + line;
  for (auto& codes : residues.codes) {
    unpack(plane, as<const std::uint8_t>(next), codes);
    std::fill_n(codes + count, TileResidues::most_lanes, std::uint8_t{code_of_zero});
    next += plane;
  }
  for (int value = 0; value < restored_values; ++value) {
    residues.exception_count[value] = header.exception_count[value];
    const std::size_t bytes = header.exception_count[value] * sizeof(std::uint32_t);
    std::memcpy(residues.exceptions[value], next, bytes);
    next += bytes;
  }
}

}  // namespace stowage::cpu
