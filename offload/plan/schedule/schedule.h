// Schedule pass: when transfers happen, as arena intervals that include their time.
//
// In a serial schedule every transfer stands between two ops. Otherwise the step is walked through once,
// stalls included. Prefetches go in order of need, the earliest deadline first. Each starts as early as the
// link is free, the host has its value and there are bytes for it. But it starts no earlier than one
// transfer's time before the latest start that is in time for it and for the prefetches behind it; the time
// to spare absorbs jitter. Offloads start at last use, and their bytes are free one transfer's time after
// their end. Where that leaves an op no room under the `cap`, the op waits for them. No position gets more
// live bytes than the cap, beyond what the ops themselves need there.
#pragma once

#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

// Seconds that ops and transfers take, without waiting.
struct Durations {
  std::vector<double> sequence;  // by position
  std::vector<double> h2d;       // by bucket
  std::vector<double> d2h;       // by bucket
  // By bucket: when the host has its value, from the step's begin. For parameters that the host updates, the
  // end of that update; if the parameter is cut, the time from which its slices can come without waiting for
  // one another's updates. For all else that comes in, 0.
  std::vector<double> ready;
};
Durations make_durations(const Graph& graph, const Draft& draft, const BucketLayout& layout,
                         const Machine& machine);

// How far transfers may go ahead.
struct Reach {
  Bytes cap = unlimited;  // the most live bytes
  // The most prefetches ahead of their use, and the most offloads that an op may run beside.
  std::uint32_t distance = 0xffffffffU;
};

// The most live bytes of a schedule.
Bytes scheduled_peak_bytes(const Draft& draft, const BucketLayout& layout);
// The most live bytes with each lifetime from its first use to its last: no schedule has fewer, whatever its
// cap.
Bytes serial_peak_bytes(const Draft& draft, const BucketLayout& layout);

// Both set `first`, `last`, `load` and `order` of every lifetime. Lifetimes of a bucket that would touch are
// joined, and the transfers between them dropped.
Draft schedule_serially(Draft draft);
Draft schedule_within(Draft draft, const Durations& durations, const BucketLayout& layout,
                      const Reach& reach);

}  // namespace stowage
