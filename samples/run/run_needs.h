// Checks that the host and the disks have room for a run.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "samples/options/options.h"
#include "src/device/host_limits.h"
#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage::samples {

// Bytes of the host, without at most 4 MiB for transfers outside of steps, and the program's own heap.
struct HostNeed {
  Bytes buckets = 0;  // bytes of the plan's buckets
  Bytes pinned = 0;   // part of `buckets` that is page-locked
  Bytes undo = 0;     // undo records of early updates
  Bytes copy = 0;     // copy of the state that checkpoints are written from
  Bytes device = 0;   // memory of simulated devices themselves
  Bytes total() const { return buckets + undo + copy + device; }
};
// Returns the need of all `devices` on this machine. `graph` has whole parameters; `plan` is that of
// each device.
HostNeed host_need(const Options& options, const Graph& graph, const Plan& plan, bool on_card,
                   std::int64_t devices);

// Throws OutOfMemory for a need above any of the limits, with the tightest limit, its value and what to set.
void require_host_memory(const HostNeed& need, std::span<const HostLimit> limits);

// Bytes that an output of the run takes at most at any time, beside what lies on its disk already.
struct DiskNeed {
  std::string output;  // such as "--checkpoint run: 4 checkpoints of 1.30 GiB"
  std::string folder;  // folder that the output is written in
  Bytes bytes = 0;
};
// Returns the needs of checkpoints, --weights and --export; logs, reports and traces are small. `first_step`:
// the completed steps that the run begins with.
std::vector<DiskNeed> disk_needs(const Options& options, const Graph& graph, std::uint64_t first_step);

// The disk on which a folder lies.
struct Disk {
  std::uint64_t id = 0;
  Bytes room = 0;  // bytes that this user may still write
};
// Returns nothing if the system does not tell.
std::optional<Disk> disk_of(const std::string& folder);

// Returns a line for each disk that has too little room, with need and room in bytes and the outputs written
// there. Other programs may write meanwhile.
std::vector<std::string> disk_warnings(
    const std::vector<DiskNeed>& needs,
    const std::function<std::optional<Disk>(const std::string&)>& disk = disk_of);

}  // namespace stowage::samples
