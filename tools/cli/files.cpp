#include "tools/cli/files.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "stowage/error.h"

namespace stowage {
std::string read_file(const std::string& path, std::uintmax_t largest, std::string_view what) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) throw InvalidInput(fmt::format("cannot read '{}': {}; give {}", path, error.message(), what));
  if (size > largest)
    throw InvalidInput(
        fmt::format("'{}' has {} bytes, more than any file of its kind; give {}", path, size, what));
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open())
    throw InvalidInput(fmt::format("cannot read '{}': {}; give {}", path, std::strerror(errno), what));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw InvalidInput(fmt::format("cannot read '{}'; give {}", path, what));
  constexpr std::string_view utf8_mark = "\xef\xbb\xbf";
  if (text.starts_with(utf8_mark)) text.erase(0, utf8_mark.size());
  return text;
}

}  // namespace stowage
