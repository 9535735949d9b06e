// Files and folders under names that nobody can guess, until they are whole and get their own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/base/file_handle.h"

namespace stowage {

// A new file, or a new folder of files. It is removed when this goes, and when a signal ends the process (see
// remove_temporaries_at_signals). Nothing that stands in the folder is opened or replaced in its place.
//
// It is locked (flock) until it has its name or goes. So the next Temporary of the same name in the folder
// knows what a killed process has left there, NAME.<16 digits>.part of the same user that nobody holds, and
// removes it. Where the file system has no locks nothing is taken for left behind.
class Temporary {
 public:
  enum class Kind : std::uint8_t { file, folder };

  Temporary() = default;
  // Under NAME.<16 digits>.part in `folder`. Where it cannot be made, `made` is false and errno says why; a
  // folder without a write bit is refused for root, too.
  Temporary(const std::string& folder, std::string_view name, Kind kind);
  Temporary(Temporary&& other) noexcept { *this = std::move(other); }
  Temporary& operator=(Temporary&& other) noexcept;
  ~Temporary() { discard(); }

  bool made() const { return entry_ != nullptr; }
  const std::string& path() const { return path_; }
  FileHandle take_file() { return std::move(file_); }  // of a new file, open to write

  // Gives it this name in the same folder, in the place of what has it. False: errno says why.
  bool rename_to(const std::string& name);

  struct Entry;  // what a signal handler can read

 private:
  void discard() noexcept;

  void make(const std::string& folder, FileHandle parent, std::string_view name, Kind kind);

  std::string path_;
  FileHandle file_;
  FileHandle lock_;  // of a file: holds the lock when `file_` is taken or closed
  Entry* entry_ = nullptr;
};

// From now on each signal that would end the process removes every Temporary first. Signals that are handled
// or ignored stay so; a file that must not grow (SIGXFSZ) becomes an error of the write.
void remove_temporaries_at_signals();

// For other handlers: removes every Temporary and ends the process by `signal`. Async-signal-safe.
void end_by_signal(int signal);

}  // namespace stowage
