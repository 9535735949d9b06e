#include "src/base/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "stowage/error.h"

namespace stowage {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_at_once = std::size_t{1} << 30;

bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Returns standard output or error if it is this file and writable; else -1. Character devices do not count:
// they have no file offset to share.
int standard_stream(const struct stat& status) {
  if (S_ISCHR(status.st_mode)) return -1;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat its {};
    const int flags = ::fcntl(stream, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || ::fstat(stream, &its) != 0) continue;
    if (is_same_file(status, its)) return stream;
  }
  return -1;
}

// Calls `put(bytes left)`, which writes some and returns their count as write and pwrite do, until all are
// written. False: errno says why.
template <class Put>
bool write_all(std::size_t bytes, Put put) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = put(done, std::min(bytes - done, most_at_once));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

OutputFile::OutputFile(const std::string& flag, std::string path, Writing writing)
    : shown_(flag.empty() ? path : flag + ' ' + path), path_(std::move(path)), writing_(writing) {
  if (path_.empty() && writing == Writing::placed) throw InvalidInput("the file has no name; give one");
  if (!path_.empty()) open();
}

void OutputFile::open() {
  if (path_ == "-") return open_stream(STDOUT_FILENO);
  struct stat status {};
  const int stream = ::stat(path_.c_str(), &status) == 0 ? standard_stream(status) : -1;
  if (stream >= 0) return open_stream(stream);
  // Opening lets the system judge the path, links and permissions, and changes nothing.
  FileHandle there(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOCTTY));
  if (there) return open_there(std::move(there));
  if (errno == EISDIR) throw InvalidInput(shown_ + ": this is a directory; name a file in it");
  if (errno == ENOENT && ::lstat(path_.c_str(), &status) == 0)
    throw InvalidInput(shown_ +
                       ": this is a link to a file that is not there; make that, or name another file");
  if (errno != ENOENT) refuse();
  open_new();
}

// Duplicates the descriptor, so that the file offset is shared with text printed before and after.
void OutputFile::open_stream(int stream) {
  if (writing_ == Writing::placed) refuse_offsets();
  file_ = FileHandle(::fcntl(stream, F_DUPFD_CLOEXEC, 0));
  if (!file_) refuse();
  direct_ = true;
}

void OutputFile::open_there(FileHandle there) {
  struct stat status {};
  if (::fstat(there.get(), &status) != 0) refuse();
  errno = EACCES;
  if ((status.st_mode & 0222U) == 0) refuse();
  direct_ = !S_ISREG(status.st_mode);
  if (direct_ && writing_ == Writing::placed && ::lseek(there.get(), 0, SEEK_CUR) < 0) refuse_offsets();
  file_ = std::move(there);
  if (direct_) return;
  if (writing_ == Writing::growing) return hold();
  replace(status);
}

// The lock goes with the file's descriptor. File systems without locks hold nothing.
void OutputFile::hold() {
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) refuse_held();
}

void OutputFile::replace(const struct stat& status) {
  std::error_code error;
  path_ = fs::canonical(path_, error).string();
  struct stat found {};
  errno = ESTALE;
  if (error || ::stat(path_.c_str(), &found) != 0 || !is_same_file(status, found)) refuse();
  open_hidden();
  // If another user's file cannot be given back to that user, it belongs to this user from now on.
  static_cast<void>(::fchown(file_.get(), status.st_uid, status.st_gid) == 0);
  if (::fchmod(file_.get(), status.st_mode & 0777U) != 0) refuse();
}

void OutputFile::open_new() {
  const fs::path path(path_);
  if (!path.has_filename()) throw InvalidInput(shown_ + ": this names a folder; name a file in it");
  open_hidden();
  if (writing_ == Writing::growing) {  // opening only tried whether `start` can make the file
    file_.close();
    hidden_ = Temporary();
  }
}

void OutputFile::open_hidden() {
  const fs::path path(path_);
  hidden_ = Temporary(path.has_parent_path() ? path.parent_path().string() : ".", path.filename().string(),
                      Temporary::Kind::file);
  if (!hidden_.made()) refuse();
  file_ = hidden_.take_file();
}

void OutputFile::refuse() const {
  throw InvalidInput(fmt::format("{}: cannot be written ({}); name a file in a writable folder", shown_,
                                 std::strerror(errno)));
}

void OutputFile::refuse_offsets() const {
  throw InvalidInput(shown_ + ": this is a stream, which cannot be written out of order; name a file");
}

void OutputFile::refuse_held() const {
  throw InvalidInput(shown_ + ": another run holds this file; name another");
}

void OutputFile::fail() const {
  throw Error(fmt::format("{}: writing failed ({}); make room there or name another file", shown_,
                          std::strerror(errno)));
}

void OutputFile::start(std::uint64_t kept) {
  if (!wanted() || direct_) return;
  if (!file_) {
    file_ = FileHandle(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0666));
    if (!file_ && errno == EEXIST) refuse_held();
    if (!file_) fail();
    hold();
  }
  if (::ftruncate(file_.get(), static_cast<off_t>(kept)) != 0) fail();
}

void OutputFile::write(std::string_view text) {
  const auto put = [&](std::size_t at, std::size_t count) {
    return ::write(file_.get(), text.data() + at, count);
  };
  if (file_ && !write_all(text.size(), put)) fail();
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto put = [&](std::size_t at, std::size_t count) {
    return ::pwrite(file_.get(), bytes.data() + at, count, static_cast<off_t>(offset + at));
  };
  if (file_ && !write_all(bytes.size(), put)) fail();
}

void OutputFile::commit() {
  if (!file_) return;
  // Some file systems cannot sync and return EINVAL.
  if (hidden_.made() && ::fsync(file_.get()) != 0 && errno != EINVAL) fail();
  if (!file_.close()) fail();
  if (hidden_.made() && !hidden_.rename_to(fs::path(path_).filename().string())) fail();
}

void write_file(const std::string& flag, const std::string& path, std::string_view text) {
  OutputFile file(flag, path, Writing::whole);
  file.write(text);
  file.commit();
}

}  // namespace stowage
