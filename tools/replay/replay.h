// Playing a trace to an allocator: what it holds at most, against what is live at most.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "src/history/allocation_trace.h"

namespace stowage {

// An allocator that trace operations can be played to: a real one, or the rules of one over addresses alone.
class AllocatorModel {
 public:
  AllocatorModel() = default;
  AllocatorModel(const AllocatorModel&) = delete;
  AllocatorModel& operator=(const AllocatorModel&) = delete;
  virtual ~AllocatorModel() = default;

  // Ids are those of the trace. Returns the address of the bytes, which overlap with no other live
  // allocation. Throws OutOfMemory, and then nothing is allocated.
  virtual std::uint64_t allocate(AllocationId id, Bytes bytes, std::uint32_t stream) = 0;
  virtual void free(AllocationId id) = 0;
  virtual void begin_iteration() {}

  // Returns the bytes that the allocator holds of the device.
  virtual Bytes reserved_bytes() const = 0;
  // Gives back memory that nothing uses, as far as it can.
  virtual void release_cached() = 0;
  // Returns false while the allocator is still learning, so that its peaks do not count yet.
  virtual bool is_warm() const { return true; }
};

struct ReplayPeaks {
  std::uint64_t operations = 0;
  Bytes live_bytes = 0;      // most live bytes, as they were asked for
  Bytes reserved_bytes = 0;  // most device bytes that the allocator held

  // Returns reserved over live bytes; 0 if nothing was live.
  double ratio() const;
};

struct ReplayResult {
  ReplayPeaks first;  // the first iteration and all before it; without iterations the whole trace
  ReplayPeaks warm;   // operations since the allocator was warm; empty if it never was
  ReplayPeaks all;
  bool out_of_memory = false;  // the trace ended early, and the peaks are those up to there
  std::string error;           // message of the out-of-memory error
};

// Throws what the model throws, but not OutOfMemory.
ReplayResult replay(const AllocationTrace& trace, AllocatorModel& model);

using MakeModel = std::function<std::unique_ptr<AllocatorModel>()>;

// Returns the wall time of an operation from the second iteration on (of all operations if there are fewer
// than two iterations), without other work: the lowest of some replays, each to a new model. 0 if one runs
// out of memory.
double nanoseconds_per_operation(const AllocationTrace& trace, const MakeModel& make_model);

}  // namespace stowage
