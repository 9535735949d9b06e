#include "src/model_files/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "stowage/error.h"

namespace stowage {
namespace {

constexpr std::size_t most_at_once = std::size_t{1} << 30;

[[noreturn]] void fail_writing(const std::string& path) {
  throw Error(fmt::format("{}: writing failed ({}); make room there or name another folder", path,
                          std::strerror(errno)));
}

}  // namespace

FileHandle::FileHandle(FileHandle&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

bool FileHandle::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  return descriptor < 0 || ::close(descriptor) == 0;
}

FileHandle open_to_read(const std::string& path, std::string_view remedy, Bytes& size) {
  // A FIFO must not make it wait.
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

void write_at(const FileHandle& file, const std::string& path, Bytes offset,
              std::span<const std::byte> value) {
  while (!value.empty()) {
    const auto put =
        ::pwrite(file.get(), value.data(), std::min(value.size(), most_at_once), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) fail_writing(path);
    offset += static_cast<Bytes>(put);
    value = value.subspan(static_cast<std::size_t>(put));
  }
}

void sync_file(const FileHandle& file, const std::string& path) {
  if (::fsync(file.get()) != 0) fail_writing(path);
}

void sync_folder(const std::string& path) {
  const FileHandle folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder, and say EINVAL.
  if (folder.get() < 0 || (::fsync(folder.get()) != 0 && errno != EINVAL)) fail_writing(path);
}

std::string read_small_file(const std::string& path, Bytes most, std::string_view remedy) {
  Bytes size = 0;
  const FileHandle file = open_to_read(path, remedy, size);
  if (size > most)
    throw InvalidInput(
        fmt::format("{}: it has {} bytes, more than any file of its kind; {}", path, size, remedy));
  std::string text(size, '\0');
  read_at(file, path, 0, std::as_writable_bytes(std::span(text)));
  return text;
}

void write_small_file(const std::string& path, std::string_view text) {
  FileHandle file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (file.get() < 0) fail_writing(path);
  write_at(file, path, 0, std::as_bytes(std::span(text)));
  sync_file(file, path);
  if (!file.close()) fail_writing(path);
}

}  // namespace stowage
