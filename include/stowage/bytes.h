// Byte counts: literals, parsing and printing.
//
// Every size in the public API is a std::uint64_t in bytes unless the name says otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stowage {

using Bytes = std::uint64_t;

inline namespace literals {
constexpr Bytes operator""_KiB(unsigned long long n) { return n << 10; }
constexpr Bytes operator""_MiB(unsigned long long n) { return n << 20; }
constexpr Bytes operator""_GiB(unsigned long long n) { return n << 30; }
}  // namespace literals

// Rounds `bytes` up to a multiple of `alignment` (a power of two).
constexpr Bytes align_up(Bytes bytes, Bytes alignment) { return (bytes + alignment - 1) & ~(alignment - 1); }

// "6GiB", "512 MiB", "1.5G", "4096", "10MB" (decimal with B after k/M/G/T, binary with iB or a bare
// letter). Throws InvalidInput that quotes `text` when it is no size or does not fit in 64 bits.
Bytes parse_bytes(std::string_view text);

// "512 B", "1.50 MiB", "6.00 GiB": for people. Programs print the integer.
std::string format_bytes(Bytes bytes);

}  // namespace stowage
