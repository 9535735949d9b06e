// The record of a program's memory calls: lines of text, appended to a file that several processes share.
// docs/interposer.md describes the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "allocator/interpose/pending_lines.h"

namespace stowage::interpose {

inline constexpr std::string_view record_header =
    "# stowage record 1\ntime_ns,pid,thread,event,kind,device,stream,address,bytes,live,result,detail\n";

struct RecordLine {
  std::string_view event;
  std::string_view kind = "-";
  int device = -1;            // -1: no device
  std::uint64_t stream = 0;   // the number that Ledger gave the stream
  std::uint64_t address = 0;  // an address or a handle
  std::uint64_t bytes = 0;
  std::uint64_t live = 0;
  int result = 0;  // the CUresult of the call
  std::string_view detail = {};
};

// Not thread-safe. Lines wait in the process's page of PendingLines, which outlives the process; without a
// page each line is written at once. The file is opened for each write, since programs close descriptors that
// they do not know. An error does not disturb the program; the page notes it.
class RecordWriter {
 public:
  // `path` empty: nothing is written. Times count from `start_ns` of CLOCK_MONOTONIC. `folder` is where files
  // of pending lines are; empty: each line is written at once.
  RecordWriter(std::string path, std::uint64_t start_ns, std::string folder = {});
  ~RecordWriter();
  RecordWriter(const RecordWriter&) = delete;
  RecordWriter& operator=(const RecordWriter&) = delete;

  void add(const RecordLine& line);
  void put(const RecordLine& line);  // like `add`, but the line is never written at once
  void flush();
  // Returns a descriptor of the file, which the caller closes; -1: the file is absent or
  // cannot be appended to.
  int open_file() const;
  bool can_append() const;
  void flush_to(int file);
  // Called when the process is about to end: every later line is written at once.
  void finish();
  // Begins anew in a child after fork: the page and its lines are the parent's.
  void start_again();
  bool in_own_process() const;  // false in a child of vfork

 private:
  bool waits() const { return is_mapped_ && !finished_; }
  void take_page();

  std::string path_, folder_;
  std::uint64_t start_ns_;
  int pid_;
  bool finished_ = false;
  bool is_mapped_ = false;  // `lines_` is this process's page
  bool has_asked_ = false;  // a page was asked for
  PendingLines own_;        // used if there is no page
  PendingLines* lines_ = &own_;
  PendingLines* parents_ = nullptr;  // the page of the process that this one was forked from
};

}  // namespace stowage::interpose
