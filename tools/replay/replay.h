// Playing a trace to an allocator: what it holds at most, against what is live at most.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/history/allocation_trace.h"
#include "tools/replay/allocator_model.h"

namespace stowage {

struct ReplayPeaks {
  std::uint64_t operations = 0;
  Bytes live_bytes = 0;      // most, as they were asked for
  Bytes reserved_bytes = 0;  // most, of the device

  // Reserved over live; 0 where nothing was live.
  double ratio() const;
};

struct ReplayResult {
  ReplayPeaks first;  // the first iteration, with what comes before it; all where there are no iterations
  ReplayPeaks warm;   // from the operation on before which the allocator was warm; nothing where it never was
  ReplayPeaks all;
  bool out_of_memory = false;  // everything up to there
  std::string error;           // of it
};

// Throws what the model throws, but not OutOfMemory.
ReplayResult replay(const AllocationTrace& trace, AllocatorModel& model);

using MakeModel = std::function<std::unique_ptr<AllocatorModel>()>;

// Wall time for each operation from the second iteration on (of all, where there are fewer than two), nothing
// else being done: the lowest of some replays, each to a new model. 0 where one runs out of memory.
double nanoseconds_per_operation(const AllocationTrace& trace, const MakeModel& make_model);

}  // namespace stowage
