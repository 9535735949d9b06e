#include "src/base/written_paths.h"

#include <fmt/format.h>

#include <filesystem>

#include "stowage/error.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

// The path by which two names of one file are the same, whether it is there or not. Empty: a device or
// a pipe.
std::string place_of(const std::string& path) {
  if (path == "-") return path;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status)) return "";
  fs::path place = fs::weakly_canonical(path, error);
  if (error) return path;
  if (!place.has_filename()) place = place.parent_path();  // "folder/"
  return fs::absolute(place, error).string();
}

}  // namespace

void WrittenPaths::add(const std::string& flag, const std::string& path, Kind kind) {
  if (path.empty())
    throw InvalidInput(fmt::format("{}: the path is empty; give one, or leave this out", flag));
  if (path == "-" && kind != Kind::text)
    throw InvalidInput(fmt::format("{} -: the standard output takes text alone; name a {}", flag,
                                   kind == Kind::folder ? "folder" : "file"));
  const std::string place = place_of(path);
  if (place.empty()) return;
  const auto [other, is_first] = flags_.emplace(place, flag);
  if (!is_first)
    throw InvalidInput(fmt::format("{} {}: {} has the same path; name another", flag, path, other->second));
}

}  // namespace stowage
