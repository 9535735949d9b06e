// Limits of the host memory that this process may still take, as the system tells them.
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

// One limit. Another process may take some of the room at any time.
struct HostLimit {
  std::string name;    // "the memory limit of the control group /job (2.00 GiB, of which 1.20 GiB are taken)"
  Bytes room = 0;      // bytes that this process may take beside what it has
  std::string remedy;  // what to do if that is too little: "raise its memory.max"
  bool of_process = false;  // true: each process of the program has a limit of its own
};

// Reads the limits that the system sets: free memory and swap of the machine; for the process's control
// group and each one above it, version 1 or 2, the limit less the memory that is taken and cannot be dropped
// (swap does not count, since a step's own bytes would go there); `ulimit -v`, less 192 MiB for libraries;
// and `ulimit -d`. Limits that are not set, and files that cannot be read or understood, are left out.
// `root` is the folder with `proc` and `sys`, whose control groups are mounted at sys/fs/cgroup (version 2)
// and sys/fs/cgroup/memory.
//
// `ulimit -l` does not count: neither device calls mlock. NVIDIA's kernel module pins pages itself and
// ignores that limit.
std::vector<HostLimit> read_host_limits(const std::string& root = "/");

// Returns the limit with the least room; null if there is none. Requires that `limits` outlives it.
const HostLimit* tightest(std::span<const HostLimit> limits);

// Throws OutOfMemory if measuring takes `need` bytes and the tightest limit has less room. The message names
// the limit and its remedy; `otherwise` (", or …") is appended.
void require_room_to_measure(Bytes need, std::span<const HostLimit> limits,
                             const std::string& otherwise = {});

// Returns the smallest memory limit of the process's control group and the groups above it, however much of
// it is taken; nullopt if there is none.
std::optional<Bytes> group_memory_limit(const std::string& root = "/");

// Whether the machine may have more memory than the `seen` bytes of its NUMA nodes: the kernel reports a
// larger total, or far more pages than it manages now, as in virtual machines whose memory grows with use.
bool memory_may_grow(Bytes seen, const std::string& root = "/");

// Returns `ulimit -l`; nullopt if it is unlimited.
std::optional<Bytes> locked_memory_limit(const std::string& root = "/");

// A failure because memory ran out, or because no thread could be started.
struct Shortage {
  std::string text;       // message, with what to do about the shortage
  bool of_limit = false;  // a limit of the process, `ulimit -v` or `-d`, may be the reason
};
// Returns the shortage behind `error`; nullopt for other errors. Reads no files, since little memory may
// be left.
std::optional<Shortage> shortage_of(const std::exception& error);

}  // namespace stowage
