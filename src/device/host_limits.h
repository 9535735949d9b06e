// How much memory of the host this process may still take, as the system tells it.
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stowage/bytes.h"

namespace stowage {

// One limit. Another process may take of the room at any time.
struct HostLimit {
  std::string name;    // "the memory limit of the control group /job (2.00 GiB, of which 1.20 GiB are taken)"
  Bytes room = 0;      // bytes that this process may take beside what it has
  std::string remedy;  // what to do where that is too little: "raise its memory.max"
  bool of_process = false;  // others of the same program have as much for themselves
};

// Reads the limits that the system sets: free memory and swap of the machine; for the process's control group
// and each one above it, version 1 or 2, the limit less what is taken and cannot be dropped (swap does not
// count, since a step's own bytes would go there); and `ulimit -v`, less 192 MiB that libraries take of it,
// and `ulimit -d`. Limits that are not there, and files that cannot be read or understood, are left out.
// `root`: the folder that has `proc` and `sys`, whose control groups are mounted at sys/fs/cgroup (version 2)
// and sys/fs/cgroup/memory.
//
// `ulimit -l` is none of them: neither device calls mlock. NVIDIA's kernel module pins pages itself, without
// a look at that limit.
std::vector<HostLimit> read_host_limits(const std::string& root = "/");

// The limit with the least room; null where there is none. Requires: `limits` outlives it.
const HostLimit* tightest(std::span<const HostLimit> limits);

// Throws OutOfMemory where measuring takes `need` bytes and the tightest limit has less room: with that
// limit, and what to do, which `otherwise` (", or …") goes on with.
void require_room_to_measure(Bytes need, std::span<const HostLimit> limits,
                             const std::string& otherwise = {});

// The least memory limit of the process's control group and those above it, whatever is taken of it, if there
// is one.
std::optional<Bytes> group_memory_limit(const std::string& root = "/");

// Whether the machine may have more memory than the `seen` bytes of its NUMA nodes: the kernel tells of more
// in all, or of far more pages than it manages now, as virtual machines do whose memory grows as it is used.
bool memory_may_grow(Bytes seen, const std::string& root = "/");

// `ulimit -l`, if it is one.
std::optional<Bytes> locked_memory_limit(const std::string& root = "/");

// An error because memory ran out, or because no thread could be started.
struct Shortage {
  std::string text;       // with what to do about it
  bool of_limit = false;  // a limit that the process has for itself, `ulimit -v` or `-d`, may be the reason
};
// Returns the shortage that `error` tells of; nothing for other errors. Reads no files: little memory may be
// left.
std::optional<Shortage> shortage_of(const std::exception& error);

}  // namespace stowage
