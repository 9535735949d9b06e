#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "src/base/temporary.h"
#include "src/model_files/files.h"
#include "stowage/error.h"
#include "stowage/model_files.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_folder(const std::string& folder, const std::string& why) {
  throw InvalidInput(fmt::format("{}: {}; name a new folder, or an empty one", folder, why));
}

// Returns "models/a" for "models/a/".
std::string without_slashes(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

// Whether another file system begins here, so that nothing can be renamed to the folder's name.
bool is_mounted(const std::string& folder) {
  struct stat inside {};
  struct stat outside {};
  return ::stat(folder.c_str(), &inside) == 0 && ::stat((folder + "/..").c_str(), &outside) == 0 &&
         inside.st_dev != outside.st_dev;
}

std::string parent_of(const std::string& folder) {
  const fs::path parent = fs::path(folder).parent_path();
  return parent.empty() ? "." : parent.string();
}

}  // namespace

ExportFolder::ExportFolder(std::string folder) : folder_(without_slashes(std::move(folder))) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(folder_, error);
  // A temporary name is cut, so it could be made where the folder's own name is too long.
  if (error == std::errc::filename_too_long) refuse_folder(folder_, error.message());
  if (fs::exists(status) && !fs::is_directory(status))
    refuse_folder(folder_, "this is there and is no folder");
  if (fs::exists(status) && !fs::is_empty(folder_, error))
    refuse_folder(folder_, error ? error.message() : "there are files in it");
  const std::string last = fs::path(folder_).filename().string();
  if (last == "." || last == ".." || is_mounted(folder_))
    refuse_folder(folder_, "it cannot be replaced by a folder that is written whole");
  if (!folder_.empty())
    temporary_ = std::make_unique<Temporary>(parent_of(folder_), last, Temporary::Kind::folder);
  if (!temporary_ || !temporary_->made())
    refuse_folder(folder_, fmt::format("it cannot be made ({})", std::strerror(errno)));
}

ExportFolder::~ExportFolder() = default;

const std::string& ExportFolder::path() const { return temporary_->path(); }

void ExportFolder::commit() {
  sync_folder(temporary_->path());
  if (!temporary_->rename_to(fs::path(folder_).filename().string()))
    throw Error(fmt::format("{}: it cannot be given its name ({}); leave the place free while it is written",
                            folder_, std::strerror(errno)));
  sync_folder(parent_of(folder_));
}

}  // namespace stowage
