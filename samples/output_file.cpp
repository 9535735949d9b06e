#include "samples/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "stowage/error.h"

namespace stowage::samples {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& flag, const std::string& path) {
  throw Error(fmt::format("{} {}: writing failed ({}); make room there or name another file", flag, path,
                          std::strerror(errno)));
}

// The file that a link points to, so that a rename does not replace the link.
fs::path behind_links(const fs::path& path) {
  std::error_code error;
  fs::path result = fs::weakly_canonical(path, error);
  return error ? path : result;
}

}  // namespace

OutputFile::OutputFile(std::string flag, std::string path, Writing writing)
    : flag_(std::move(flag)), path_(std::move(path)) {
  if (path_.empty()) return;
  std::error_code error;
  const fs::file_type type = fs::status(path_, error).type();
  if (type == fs::file_type::directory) {
    throw InvalidInput(fmt::format("{} {}: this is a directory; name a file in it", flag_, path_));
  }
  const bool regular = type == fs::file_type::regular || type == fs::file_type::not_found;
  std::string opened = path_;
  if (regular && writing == Writing::whole) {
    path_ = behind_links(path_).string();
    opened = temporary_ = fmt::format("{}.{}.part", path_, ::getpid());
    rename_ = true;
  } else if (type == fs::file_type::not_found) {
    temporary_ = path_;
  }
  // "a" leaves the old contents alone; what lies under a temporary name is a dead process's.
  file_.reset(std::fopen(opened.c_str(), rename_ ? "wb" : "ab"));
  const bool forbidden = type == fs::file_type::regular && ::access(path_.c_str(), W_OK) != 0;
  if (!file_ || forbidden) {
    const std::string why = std::strerror(errno);
    discard();
    throw InvalidInput(
        fmt::format("{} {}: cannot be written ({}); name a file in a writable folder", flag_, path_, why));
  }
}

OutputFile::OutputFile(OutputFile&& other) noexcept { *this = std::move(other); }

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(flag_, other.flag_);
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(rename_, other.rename_);
  std::swap(file_, other.file_);
  return *this;
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() noexcept {
  file_.reset();
  if (!temporary_.empty()) std::remove(temporary_.c_str());
  temporary_.clear();
}

void OutputFile::start(std::uint64_t kept) {
  if (!file_) return;
  std::error_code error;
  const bool regular = fs::is_regular_file(path_, error);
  if (regular && ::ftruncate(::fileno(file_.get()), static_cast<off_t>(kept)) != 0) fail(flag_, path_);
  if (!rename_) temporary_.clear();
}

void OutputFile::write(std::string_view text) {
  if (file_ && std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) fail(flag_, path_);
}

void OutputFile::flush() {
  if (file_ && std::fflush(file_.get()) != 0) fail(flag_, path_);
}

void OutputFile::commit() {
  if (!file_) return;
  flush();
  // On the disk before it has its name; some file systems cannot, and say EINVAL.
  if (rename_ && ::fsync(::fileno(file_.get())) != 0 && errno != EINVAL) fail(flag_, path_);
  if (std::fclose(file_.release()) != 0) fail(flag_, path_);
  if (rename_ && std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(flag_, path_);
  temporary_.clear();
}

}  // namespace stowage::samples
