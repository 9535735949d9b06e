// Schedule pass: when transfers happen, as arena intervals that include their time.
//
// In a serial schedule every transfer stands between two ops. Otherwise the step is walked through once,
// stalls included. Prefetches go in order of need, the earliest deadline first. Each prefetch starts as soon
// as the link is free, the host has its value and there are bytes for it. But it starts no earlier than one
// transfer's time before the latest start that is in time for it and for the prefetches behind it; the time
// to spare absorbs jitter. Offloads start at last use, and their bytes are free one transfer's time after
// their end. If an op has no room under the `cap`, it waits for offloads to end. No position has more live
// bytes than the cap, unless the ops themselves need more there.
#pragma once

#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

// Seconds that ops and transfers take, without waiting.
struct Durations {
  std::vector<double> sequence;  // seconds of each position
  std::vector<double> h2d;       // seconds to bring a bucket in
  std::vector<double> d2h;       // seconds to take a bucket out
  // By bucket: seconds from the step's begin until the host has its value. Parameters that the host updates
  // are ready at the end of the update. A parameter that is cut is ready when its slices can come one behind
  // the other without waiting for updates. Every other bucket that comes in is ready at 0.
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

// Returns the most live bytes of a scheduled draft.
Bytes scheduled_peak_bytes(const Draft& draft, const BucketLayout& layout);
// Returns the most live bytes if each lifetime lasts from its first use to its last. No schedule has fewer,
// whatever its cap.
Bytes serial_peak_bytes(const Draft& draft, const BucketLayout& layout);

// Both functions set `first`, `last`, `load` and `order` of every lifetime. Both join lifetimes of a bucket
// that would touch, and drop the transfers between them.
Draft schedule_serially(Draft draft);
Draft schedule_within(Draft draft, const Durations& durations, const BucketLayout& layout,
                      const Reach& reach);

}  // namespace stowage
