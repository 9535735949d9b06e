// Schedule pass: when transfers happen, as arena intervals that include their time.
//
// Serially, every transfer stands between two ops. Otherwise the step is walked through once, stalls
// included. A prefetch starts in order of need (earliest deadline first on the one link): as early as the
// link is free, the host has its value, and bytes are, but not earlier than what follows on the link makes
// necessary and one transfer's time more, to absorb jitter. Offloads start at last use. No position gets
// more live bytes than the `cap`, beyond what the ops themselves need there.
#pragma once

#include "offload/plan/lifetimes.h"

namespace stowage {

// By position and bucket: durations in seconds, without waiting.
struct Durations {
  std::vector<double> sequence;  // by position
  std::vector<double> h2d;       // by bucket
  std::vector<double> d2h;       // by bucket
  // By bucket: when the host has the value of this step, from the step's begin; 0 where it always has.
  std::vector<double> ready;
};
Durations make_durations(const Graph& graph, const Draft& draft, const BucketLayout& layout,
                         const Machine& machine);

// How far transfers may go ahead.
struct Reach {
  Bytes cap = unlimited;                 // of live bytes
  std::uint32_t distance = 0xffffffffU;  // of transfers each way that are under way or wait to be used
};

// The most live bytes of a schedule.
Bytes scheduled_peak_bytes(const Draft& draft, const BucketLayout& layout);
// Live bytes that the ops alone need: the smallest cap that changes nothing.
Bytes serial_peak_bytes(const Draft& draft, const BucketLayout& layout);

// Both set `first` and `last` of every lifetime. Lifetimes of a bucket that would touch are joined, and the
// transfers between them dropped.
Draft schedule_serially(Draft draft);
Draft schedule_within(Draft draft, const Durations& durations, const BucketLayout& layout,
                      const Reach& reach);

}  // namespace stowage
