// Integers as bytes, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stowage::ranks {

inline void put(std::string& to, std::uint32_t value) {
  for (int byte = 0; byte < 4; ++byte) to.push_back(static_cast<char>((value >> (8 * byte)) & 0xff));
}

// Requires four bytes at `at`.
inline std::uint32_t get(std::string_view from, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t byte = 0; byte < 4; ++byte)
    value |= static_cast<std::uint32_t>(static_cast<unsigned char>(from[at + byte])) << (8 * byte);
  return value;
}

}  // namespace stowage::ranks
