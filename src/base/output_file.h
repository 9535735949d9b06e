// Files that programs write: opened before the work, so that a bad path is told at once.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "src/base/file_handle.h"
#include "src/base/temporary.h"

namespace stowage {

// How a regular file gets its name.
enum class Writing : std::uint8_t {
  whole,    // written under a temporary name until `commit`: nothing half-written is ever seen
  placed,   // like `whole`, but written at any offsets; a pipe, which has none, is refused
  growing,  // under its own name from the start, line by line; no other run may write it meanwhile
};

// Writes directly into an existing path that is no regular file (/dev/null, a terminal, a FIFO), and into the
// process's own standard output or error; "-" is standard output. A link is followed to its file, whose mode
// and owner stay. Files and folders without a write bit are refused, for root too. Opens nothing for an empty
// path; then `wanted` is false and the other calls do nothing.
class OutputFile {
 public:
  OutputFile() = default;
  // Throws InvalidInput naming `flag` (may be empty) and `path` when the file cannot be written, or is
  // another run's growing file. An earlier run's file at `path` stays until `start` (growing) or
  // `commit` (otherwise).
  OutputFile(const std::string& flag, std::string path, Writing writing);

  bool wanted() const { return !path_.empty(); }
  const std::string& path() const { return path_; }
  bool is_direct() const { return direct_; }  // true: writes to no regular file of its own

  // Growing: makes the file, or empties it but for its first bytes. Throws InvalidInput if another run has
  // made the file since this one was opened.
  void start(std::uint64_t kept = 0);
  // These throw Error naming the file when the disk refuses.
  void write(std::string_view text);
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);  // for Writing::placed
  void commit();  // closes the file; syncs it first, and renames it then, unless it grows

 private:
  void open();
  void open_stream(int stream);
  void open_there(FileHandle there);
  void open_new();
  void open_hidden();
  void replace(const struct stat& status);
  void hold();
  [[noreturn]] void refuse() const;
  [[noreturn]] void refuse_offsets() const;
  [[noreturn]] void refuse_held() const;
  [[noreturn]] void fail() const;

  std::string shown_;  // for messages
  std::string path_;
  Writing writing_ = Writing::whole;
  bool direct_ = false;
  FileHandle file_;  // a new growing file is open only from `start` on
  Temporary hidden_;
};

// Replaces the file atomically with `text`.
void write_file(const std::string& flag, const std::string& path, std::string_view text);

}  // namespace stowage
