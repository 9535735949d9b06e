#include "src/cli/files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "stowage/error.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw InvalidInput(fmt::format("cannot write '{}': {}; name a file in a writable folder", path, why));
}

std::string temporary_name(const std::string& path) { return fmt::format("{}.{}.part", path, ::getpid()); }

}  // namespace

std::string read_file(const std::string& path, std::uintmax_t largest, std::string_view what) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) throw InvalidInput(fmt::format("cannot read '{}': {}; give {}", path, error.message(), what));
  if (size > largest)
    throw InvalidInput(
        fmt::format("'{}' has {} bytes, more than any file of its kind; give {}", path, size, what));
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) throw InvalidInput(fmt::format("cannot read '{}'; give {}", path, what));
  return text;
}

void check_writable(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) refuse(path, "it is a folder");
  const std::string temporary = temporary_name(path);
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) refuse(path, std::strerror(errno));
  std::fclose(file);
  std::remove(temporary.c_str());
}

void write_file(const std::string& path, std::string_view text) {
  const std::string temporary = temporary_name(path);
  std::FILE* file = std::fopen(temporary.c_str(), "wb");
  if (file == nullptr) refuse(path, std::strerror(errno));
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  written = std::fclose(file) == 0 && written;
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  const std::string why = std::strerror(errno);
  std::remove(temporary.c_str());
  refuse(path, why);
}

}  // namespace stowage
