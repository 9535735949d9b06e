// Reads the record of `stowage run` (docs/interposer.md) and sums it up.
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

// The largest value in each of at most 2,048 equal stretches of time, which get longer as time goes on.
class RunCurve {
 public:
  void add(std::uint64_t time_ns, Bytes value);

  std::uint64_t step_ns() const { return step_ns_; }
  std::uint64_t first_ns() const { return first_ns_; }
  std::uint64_t last_ns() const { return last_ns_; }
  // Returns the values in steps of `step_ns`, a multiple of step_ns(), from time 0; 0 before the first and
  // after the last time.
  std::vector<Bytes> values(std::uint64_t step_ns) const;

 private:
  void fill_to(std::size_t index);

  std::uint64_t step_ns_ = 1000;
  std::uint64_t first_ns_ = 0, last_ns_ = 0;
  bool empty_ = true;
  Bytes now_ = 0;
  std::vector<Bytes> largest_;
};

struct RunKind {
  std::uint64_t calls = 0, frees = 0, failed = 0, refused = 0;
  Bytes bytes = 0;  // bytes of all calls
  Bytes live = 0, peak = 0;
};

// Sum of bytes times the seconds for which they were held.
class RunHeld {
 public:
  void add(std::uint64_t time_ns, Bytes value);  // `value` bytes are held from `time_ns` on

  double byte_seconds() const { return byte_seconds_; }

 private:
  std::uint64_t last_ns_ = 0;
  Bytes now_ = 0;
  double byte_seconds_ = 0;
};

struct RunCard {
  Bytes live = 0, peak = 0;
  RunCurve curve;
  RunHeld held;
};

// Memory that went to the host in place of the card.
struct RunSpill {
  std::uint64_t calls = 0;   // calls that got host memory
  std::uint64_t full = 0;    // calls beyond the limit of --spill
  std::uint64_t failed = 0;  // calls for which the driver had no host memory
  Bytes bytes = 0;           // bytes of all calls
  Bytes live = 0, peak = 0;
  RunCurve curve;
  RunHeld held;
};

// A program in a process: one that takes another's place by exec has an account of its own.
struct RunImage {
  RunImage(int process_id, int number_before = 0) : process(process_id), before(number_before) {}
  friend bool operator<(const RunImage& one, const RunImage& other) {
    return one.process != other.process ? one.process < other.process : one.before < other.before;
  }

  int process;
  int before;  // number of programs that this process, or an earlier one of its id, ran before
};

struct RunProcess {
  std::string program;
  std::uint64_t calls = 0;
  bool has_ended = false;  // the program ended by itself, or by an exec
  std::map<int, RunCard> cards;
  std::map<std::string, RunKind> kinds;
  RunSpill spill;
};

struct RunRecord {
  std::map<RunImage, RunProcess> processes;
  std::map<int, int> images;  // by process id: number of its images in `processes`
  // By function: times given out at a version that the interposer does not know.
  std::map<std::string, int> missed;
  // Programs that were started in an environment without the libraries, and processes that became a user who
  // cannot write the record; by name, how often.
  std::map<std::string, int> unwatched, unrecorded;
  std::map<std::string, int> elsewhere;  // programs started by a `stowage run` within this one, by name
  std::uint64_t exports = 0, opens = 0;
  std::uint64_t not_exported = 0;  // allocations that were not exported because they were spilled
  std::uint64_t unreadable = 0;  // unreadable lines; a process that crashed may leave its last one unfinished
  std::set<int> running;         // processes still running when the record was read
  std::uint64_t unwritten = 0;   // processes that could not write all of their lines

  std::uint64_t calls() const;
  std::uint64_t without_end() const;  // number of images with calls that were killed or crashed
};

// Takes any text: lines that belong to no record count as unreadable.
RunRecord read_run_record(std::istream& text);

}  // namespace stowage
