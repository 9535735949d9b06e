// Buffers with lifetimes as CSV, the format of public placement instances (minimalloc, idealloc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stowage/placement.h"

namespace stowage {

struct Buffers {
  std::vector<std::string> ids;      // no two alike
  std::vector<PlacementItem> items;  // by id; together at most 4 EiB
};

// A header and one line per buffer, ended by LF or CRLF. Columns, in any order: id (any text without commas,
// quotes and control characters), lower, upper, size (whole numbers in digits, lower < upper, size > 0). A
// column `offset`, which `to_csv` writes, is passed over; any other is refused, since it may mean something.
// Throws InvalidInput that names `file` and the line and says what to do.
Buffers parse_buffers(std::string_view text, const std::string& file);

// id,lower,upper,size,offset
std::string to_csv(const Buffers& buffers, const std::vector<Bytes>& offsets);

}  // namespace stowage
