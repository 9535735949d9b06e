// Files that commands read and write. Errors are InvalidInput that names the path.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stowage {

// The whole file; `what` says what it should be, e.g. "a graph saved with to_json".
std::string read_file(const std::string& path, std::uintmax_t largest, std::string_view what);

// Refuses a place where nothing can be written, before any work is done for it.
void check_writable(const std::string& path);
// Under a temporary name beside it first: nothing half-written is ever seen under `path`.
void write_file(const std::string& path, std::string_view text);

}  // namespace stowage
