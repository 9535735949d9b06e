// Files and folders under names that nobody can guess, until they are whole and get their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/file_handle.h"

namespace stowage {

// A new file, or a new folder of files. The destructor removes it, and so does a signal that ends the process
// (see remove_temporaries_at_signals). No existing file is opened or replaced for it.
//
// It is locked (flock) until it gets its name or is removed. The next Temporary of the same name in the
// folder removes files that a killed process has left there: NAME.<16 digits>.part of the same user that
// nobody has locked. Nothing is removed on file systems without locks.
class Temporary {
 public:
  enum class Kind : std::uint8_t { file, folder };

  Temporary() = default;
  // Makes NAME.<16 digits>.part in `folder`. On failure `made` is false and errno says why; a folder without
  // a write bit is refused for root, too.
  Temporary(const std::string& folder, std::string_view name, Kind kind);
  Temporary(Temporary&& other) noexcept { *this = std::move(other); }
  Temporary& operator=(Temporary&& other) noexcept;
  ~Temporary() { discard(); }

  bool made() const { return entry_ != nullptr; }
  const std::string& path() const { return path_; }
  FileHandle take_file() { return std::move(file_); }  // the new file, open to write

  // Renames it within its folder, replacing a file of that name. False: errno says why.
  bool rename_to(const std::string& name);

  struct Entry;  // readable by a signal handler

 private:
  void discard() noexcept;

  void make(const std::string& folder, FileHandle parent, std::string_view name, Kind kind);

  std::string path_;
  FileHandle file_;
  FileHandle lock_;  // keeps the file's lock once `file_` is taken or closed
  Entry* entry_ = nullptr;
};

// Makes each signal that would end the process remove every Temporary first. Signals that are handled or
// ignored stay so; a file that must not grow (SIGXFSZ) becomes an error of the write.
void remove_temporaries_at_signals();

// Removes every Temporary and ends the process by `signal`; other handlers may call it. Async-signal-safe.
void end_by_signal(int signal);

}  // namespace stowage
