#include "src/model_files/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "src/base/lfs_pointer.h"
#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t most_at_once = std::size_t{1} << 30;

}  // namespace

FileHandle open_to_read(const std::string& path, std::string_view remedy, Bytes& size) {
  // O_NONBLOCK: opening a FIFO must not wait.
  FileHandle file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0)
    throw InvalidInput(fmt::format("{}: cannot be read ({}); {}", path, std::strerror(errno), remedy));
  if (!S_ISREG(status.st_mode))
    throw InvalidInput(fmt::format("{}: cannot be read (it is no regular file); {}", path, remedy));
  size = static_cast<Bytes>(status.st_size);
  return file;
}

void read_at(const FileHandle& file, const std::string& path, Bytes offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const auto got =
        ::pread(file.get(), into.data(), std::min(into.size(), most_at_once), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw Error(
          fmt::format("{}: reading failed ({}); see whether the disk is well", path, std::strerror(errno)));
    if (got == 0)
      throw InvalidInput(
          fmt::format("{}: it has become shorter while it was read; give a file that nobody writes", path));
    offset += static_cast<Bytes>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
}

void sync_folder(const std::string& path) {
  const FileHandle folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder and return EINVAL.
  if (!folder || (::fsync(folder.get()) != 0 && errno != EINVAL))
    throw Error(fmt::format("{}: writing failed ({}); make room there or name another folder", path,
                            std::strerror(errno)));
}

std::string read_small_file(const std::string& path, Bytes most, std::string_view remedy) {
  Bytes size = 0;
  const FileHandle file = open_to_read(path, remedy, size);
  if (size > most)
    throw InvalidInput(
        fmt::format("{}: it has {} bytes, more than any file of its kind; {}", path, size, remedy));
  std::string text(size, '\0');
  read_at(file, path, 0, std::as_writable_bytes(std::span(text)));
  refuse_lfs_pointer(text, path);
  return text;
}

}  // namespace stowage
