// The gradient ring (plan.h): which gradient buckets take turns in host bytes, and in which order.
//
// Gradients take bytes one behind the other, in the order of their offloads. A gradient for which the rest of
// the ring is too small begins at 0 again:
//
//   in 256 bytes   0   1   2   3   4   5   6   7   8
//   g5, g4         [  g5  ][      g4      ]
//   g3             [    g3    ]                      behind the updates by g5 and g4
//   g2                         [      g2      ]      behind the update by g4
//   g1             [    g1    ]                      behind the update by g3
//
// A gradient that is cut and larger than the ring takes the whole ring, for as many of its slices as fit. Its
// slices take turns: the offload of a slice stands behind the update by the slice that had these bytes. In
// the arena the gradient keeps its bytes until its last slice has left.
//
//   g0, 5 slices   [  s0  ][  s1  ][  s2  ]          behind the updates by all others
//                  [  s3  ][  s4  ]                  s3 behind the update by s0, s4 behind that by s1
#pragma once

#include <map>
#include <vector>

#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

// Returns by bucket the position behind which its last transfer of the step stands; 0 without transfers.
std::vector<Position> last_transfers(const Draft& draft, const BucketLayout& layout);

// The ring has 1/ring_part of its gradients' bytes: 0.25 bytes for each parameter whose gradient is bf16.
inline constexpr Bytes ring_part = 8;

struct GradientRing {
  struct Turn {
    Bytes offset = 0;
    std::size_t slices = 0;       // number of slices in the ring at a time; 0: the gradient leaves whole
    std::vector<BucketId> after;  // gradient buckets that were the previous owners of its bytes in this step
  };
  Bytes bytes = 0;
  std::map<BucketId, Turn> turns;  // turns by gradient bucket in the ring
};

// Returns the ring of the draft's early updates; an empty one unless they are made for good
// (EarlyUpdates::final). Gradients of these updates are in the ring, except those that rest on the host as
// sums of micro-batches. The ring has 1/ring_part of these gradients' bytes, but no fewer than the two
// largest together (a gradient that is cut counts as two slices). The ring is larger if the plan would
// otherwise offload a gradient before the update by a previous owner of its bytes.
//
// Gradients enter the ring in the plan's order of offloads. Among those that leave behind the same
// op, gradients that leave by slices come last, behind the others' updates and in the order of
// their bucket numbers.
GradientRing gradient_ring(const Draft& draft, const BucketLayout& layout);

}  // namespace stowage
