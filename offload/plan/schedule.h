// Schedule pass: when transfers happen, as arena intervals that include their time.
//
// Prefetches start at the latest moment that still meets their use, in order of need (earliest
// deadline first on the one link), then earlier by one transfer's time to absorb jitter; offloads
// start at last use. At most `distance` transfers are under way or waiting to be used, so a
// smaller distance needs less memory. Distance 0 is serial: every transfer stands between two ops.
#pragma once

#include "offload/plan/lifetimes.h"

namespace stowage {

// By position and bucket: durations in seconds, without waiting.
struct Durations {
  std::vector<double> sequence;  // by position
  std::vector<double> h2d;       // by bucket
  std::vector<double> d2h;       // by bucket
};
Durations make_durations(const Graph& graph, const Draft& draft, const BucketLayout& layout,
                         const Machine& machine);

// Sets `first` and `last` of every lifetime. Lifetimes of a bucket that would touch are joined, and
// the transfers between them dropped.
Draft schedule(Draft draft, const Durations& durations, std::uint32_t distance);

}  // namespace stowage
