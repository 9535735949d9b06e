// Files that a run writes: opened before the work, so that a bad path is told at once.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace stowage::samples {

// How a file comes to its name.
enum class Writing : std::uint8_t {
  whole,    // under a temporary name beside it until `commit`: nothing half-written is ever seen
  growing,  // at once, line by line
};

// Opens nothing for an empty path; then `wanted` is false and the other calls do nothing. A path that
// is there and no regular file (/dev/stdout, a FIFO) is written directly.
class OutputFile {
 public:
  OutputFile() = default;
  // Throws InvalidInput naming `flag` and `path` when the file cannot be written. What an earlier run
  // left at `path` stays until `start` (growing) or `commit` (whole).
  OutputFile(std::string flag, std::string path, Writing writing);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();  // removes what was neither started nor committed

  bool wanted() const { return file_ != nullptr; }
  const std::string& path() const { return path_; }

  void start(std::uint64_t kept = 0);  // growing: empties the file but for its first bytes
  // These throw Error naming the file when the disk refuses.
  void write(std::string_view text);
  void flush();
  void commit();  // flushes, closes, and gives a whole file its name

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  void discard() noexcept;

  std::string flag_;
  std::string path_;
  std::string temporary_;  // remove this unless committed; empty: nothing to remove
  bool rename_ = false;
  File file_{nullptr, std::fclose};
};

}  // namespace stowage::samples
