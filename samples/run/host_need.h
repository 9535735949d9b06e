// Whether the host has the memory that a run is about to take.
#pragma once

#include <span>

#include "samples/options/options.h"
#include "src/device/host_limits.h"
#include "stowage/graph.h"
#include "stowage/plan.h"

namespace stowage::samples {

// Bytes of the host. Not in it: at most 4 MiB for transfers outside of steps, and the program's own heap.
struct HostNeed {
  Bytes buckets = 0;  // of the plan
  Bytes pinned = 0;   // of them
  Bytes undo = 0;     // records of early updates
  Bytes copy = 0;     // that checkpoints are written from
  Bytes device = 0;   // simulated devices' own memory
  Bytes total() const { return buckets + undo + copy + device; }
};
// Of all `devices` on this machine. `graph` has whole parameters; `plan` is that of each device.
HostNeed host_need(const Options& options, const Graph& graph, const Plan& plan, bool on_card,
                   std::int64_t devices);

// Throws OutOfMemory for a need above any of the limits, with the tightest one, its value and what to set.
void require_host_memory(const HostNeed& need, std::span<const HostLimit> limits);

}  // namespace stowage::samples
