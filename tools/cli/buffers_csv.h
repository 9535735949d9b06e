// Buffers with lifetimes as CSV, the format of public placement instances (minimalloc, idealloc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stowage/placement.h"

namespace stowage {

inline constexpr Bytes most_place_alignment = 1_GiB;

struct Buffers {
  std::vector<std::string> ids;      // unique ids
  std::vector<PlacementItem> items;  // buffers, numbered as in `ids`; together at most 4 EiB
  Bytes alignment = 1;               // the largest alignment that a buffer asks for
  std::size_t gaps = 0;              // buffers that are out of use for a while: placed as if they were in use
  std::size_t hints = 0;             // buffers with an offset that the file suggests
};

// A header and one line per buffer, ended by LF or CRLF. Columns, in any order: id (any text without commas,
// quotes and control characters), lower, upper, size (whole numbers in digits, lower < upper, size > 0); for
// these also minimalloc's older buffer, start and end, the last time in which it is in use. Optional columns:
// alignment (a power of two), gaps and hint, which are counted. A column `offset`, which `to_csv` writes, is
// passed over; any other is refused, since it may mean something. Throws InvalidInput that names `file` and
// the line and says what to do.
Buffers parse_buffers(std::string_view text, const std::string& file);

// id,lower,upper,size,offset
std::string to_csv(const Buffers& buffers, const std::vector<Bytes>& offsets);

}  // namespace stowage
