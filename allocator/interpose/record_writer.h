// The record of a program's memory calls: lines of text, appended to a file that several processes share.
// docs/interposer.md describes the format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stowage::interpose {

inline constexpr std::string_view record_header =
    "# stowage record 1\ntime_ns,pid,thread,event,kind,device,stream,address,bytes,live,result,detail\n";

struct RecordLine {
  std::string_view event;
  std::string_view kind = "-";
  int device = -1;            // -1: none
  std::uint64_t stream = 0;   // as Ledger numbers them
  std::uint64_t address = 0;  // or a handle
  std::uint64_t bytes = 0;
  std::uint64_t live = 0;
  int result = 0;  // a CUresult
  std::string_view detail = {};
};

// Not thread-safe. Keeps at most 4 KiB: what a crash can lose. The file is opened for each write, since
// programs close descriptors that they do not know; an error is no reason to disturb the program, so it is
// passed over.
class RecordWriter {
 public:
  // `path` empty: nothing is written. Times count from `start_ns` of CLOCK_MONOTONIC.
  RecordWriter(std::string path, std::uint64_t start_ns);

  void add(const RecordLine& line);
  void flush();
  // The file, which the caller closes; -1: it cannot be appended to, or there is none.
  int open_file() const;
  bool can_append() const;
  void flush_to(int file);
  // Every line from now on is written at once: the process is about to end.
  void finish();
  // In a child after fork: forgets what is not written yet, it is the parent's.
  void start_again();
  bool in_own_process() const;  // not so in a child of vfork

 private:
  std::string path_;
  std::uint64_t start_ns_;
  int pid_;
  bool finished_ = false;
  std::array<char, 4096> buffer_{};
  std::size_t used_ = 0;
};

}  // namespace stowage::interpose
