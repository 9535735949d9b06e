#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "src/base/output_file.h"
#include "src/checkpoint/checkpoint_tensors.h"
#include "src/checkpoint/checksum.h"
#include "src/checkpoint/state_json.h"
#include "src/model_files/files.h"
#include "stowage/checkpoint.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& folder, std::string_view why) {
  throw InvalidInput(fmt::format("{}: {}; name another folder for checkpoints", folder, why));
}

// Syncs the folder's name to the disk, or else its files may be lost when the machine stops. Parents that
// cannot be read are passed over.
void sync_parents(fs::path folder) {
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    const fs::path parent = folder.parent_path();
    try {
      sync_folder(parent.empty() ? "." : parent.string());
    } catch (const Error&) {
      return;
    }
  }
}

// `made`: set to whether the folder is new.
std::string make_folder(std::string folder, bool& made) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  std::error_code error;
  made = fs::create_directories(folder, error);
  if (error || folder.empty()) refuse(folder, "it cannot be made (" + error.message() + ")");
  if (made) sync_parents(folder);
  if (::access(folder.c_str(), R_OK | W_OK | X_OK) != 0)
    refuse(folder, fmt::format("it cannot be written ({})", std::strerror(errno)));
  return folder;
}

// Returns the descriptor that holds the lock. The lock ends with the process, however the process ends.
int lock_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) refuse(folder, fmt::format("it cannot be opened ({})", std::strerror(errno)));
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return descriptor;
  const int reason = errno;
  ::close(descriptor);
  if (reason == EWOULDBLOCK) refuse(folder, "another process writes checkpoints there");
  refuse(folder, fmt::format("it cannot be locked ({})", std::strerror(reason)));
}

void remove_leftovers(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(writing_prefix) || name.starts_with(removing_prefix))
      leftovers.push_back(entry.path());
  }
  for (const fs::path& path : leftovers) fs::remove_all(path, error);
}

[[noreturn]] void fail_renaming(const std::string& from, const std::string& to) {
  throw Error(fmt::format("{}: it cannot be renamed to {} ({}); see whether the disk is well", from, to,
                          std::strerror(errno)));
}

// Renames the folder first, so that a half-removed checkpoint does not look like one.
void remove_checkpoint(const std::string& parent, const std::string& path) {
  const std::string aside =
      fmt::format("{}/{}{}-{}", parent, removing_prefix, ::getpid(), fs::path(path).filename().string());
  if (std::rename(path.c_str(), aside.c_str()) != 0) fail_renaming(path, aside);
  sync_folder(parent);
  std::error_code error;
  fs::remove_all(aside, error);  // the next process removes whatever is left
}

void write_tensors(const std::string& path, CheckpointState& state, const CheckpointFolder::ReadValue& read) {
  OutputFile file("", path, Writing::placed);
  std::vector<std::byte> piece;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    CheckpointTensor& tensor = state.tensors[i];
    Checksum checksum;
    const auto put = [&](Bytes offset) {
      file.write_at(offset, piece);
      checksum.add(piece);
    };
    for_each_piece(tensor.bytes, [&](Bytes offset, Bytes bytes) {
      piece.resize(bytes);
      read(i, offset, piece);
      put(tensor.offset + offset);
    });
    const Bytes end = tensor.offset + tensor.bytes;
    piece.assign(next_offset(tensor).value_or(end) - end, std::byte{0});
    put(end);
    tensor.checksum = checksum.digits();
  }
  file.commit();
}

// The name that the link `best` leads to; "" without one.
std::string best_name(const std::string& folder) {
  std::error_code error;
  return fs::read_symlink(folder + std::string(best_link), error).string();
}

// Replaces the link atomically.
void set_best(const std::string& folder, const std::string& name) {
  const std::string link = folder + std::string(best_link);
  const std::string aside = fmt::format("{}/{}{}-best", folder, writing_prefix, ::getpid());
  if (::symlink(name.c_str(), aside.c_str()) != 0)
    throw Error(fmt::format("{}: it cannot be linked to {} ({}); name a folder where links can be made",
                            aside, name, std::strerror(errno)));
  if (std::rename(aside.c_str(), link.c_str()) != 0) {
    const int reason = errno;
    ::unlink(aside.c_str());
    throw Error(
        fmt::format("{}: it cannot be replaced ({}); move what stands there", link, std::strerror(reason)));
  }
  sync_folder(folder);
}

// Whether the folder that `descriptor` has open is the one at this path now.
bool is_same_folder(int descriptor, const std::string& path) {
  struct stat held {
  }, there{};
  return ::fstat(descriptor, &held) == 0 && ::stat(path.c_str(), &there) == 0 &&
         held.st_dev == there.st_dev && held.st_ino == there.st_ino;
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string folder, std::uint64_t keep, FreeDiskBytes free)
    : folder_(make_folder(std::move(folder), made_)), keep_(keep), free_(std::move(free)) {
  if (keep_ == 0) refuse(folder_, "at least one checkpoint must be kept, not 0");
  lock_ = lock_folder(folder_);
  remove_leftovers(folder_);
}

CheckpointFolder::~CheckpointFolder() {
  remove_unused();
  ::close(lock_);
}

void CheckpointFolder::require_best_link() const {
  const std::string path = folder_ + std::string(best_link);
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (fs::exists(status) && !fs::is_symlink(status))
    throw InvalidInput(
        fmt::format("{}: this is no link to one of the checkpoints beside it, as in a copy that followed "
                    "links; remove it, or make it "
                    "a link to the best of them",
                    path));
}

void CheckpointFolder::remove_unused() const {
  if (made_) ::rmdir(folder_.c_str());  // succeeds only if it is empty
}

// Makes the folder and its lock anew if somebody has removed them.
void CheckpointFolder::make_again() {
  if (is_same_folder(lock_, folder_)) return;
  bool made = false;
  make_folder(folder_, made);
  made_ = made_ || made;
  const int lock = lock_folder(folder_);
  ::close(lock_);
  lock_ = lock;
}

void CheckpointFolder::write(CheckpointState state, const ReadValue& read, CheckpointRank rank) {
  make_again();
  require_room(state);
  const std::uint64_t step = state.step;
  const std::string name = checkpoint_name(step);
  const std::string path = folder_ + "/" + name;
  Temporary writing(folder_, std::string(writing_prefix) + name, Temporary::Kind::folder);
  if (!writing.made())
    throw Error(fmt::format("{}: it cannot be made ({}); make room there or name another folder", path,
                            std::strerror(errno)));
  write_tensors(writing.path() + std::string(tensors_file), state, read);
  write_file("", writing.path() + std::string(state_file), state_to_json(state));
  sync_folder(writing.path());
  // A checkpoint of this step is left from a run that was resumed at an earlier step.
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) remove_checkpoint(folder_, path);
  if (!writing.rename_to(name)) fail_renaming(writing.path(), path);
  sync_folder(folder_);
  if (rank == CheckpointRank::best)
    set_best(folder_, name);
  else if (best_name(folder_) == name)
    ::unlink((folder_ + std::string(best_link)).c_str());  // the link led to the removed checkpoint
  remove_older(step);
}

void CheckpointFolder::remove_older(std::uint64_t step) const {
  const std::string best = best_name(folder_);
  std::uint64_t kept = 0;
  for (const CheckpointName& name : list_checkpoints(folder_)) {
    if (name.step > step || ++kept <= keep_ || checkpoint_name(name.step) == best) continue;
    remove_checkpoint(folder_, name.path);
  }
}

}  // namespace stowage
