// Files that commands read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stowage {

// Returns the whole file, without the mark of UTF-8 at its beginning. Throws InvalidInput that names the
// path; `what` says what it should be, e.g. "a graph saved with to_json".
std::string read_file(const std::string& path, std::uintmax_t largest, std::string_view what);

}  // namespace stowage
