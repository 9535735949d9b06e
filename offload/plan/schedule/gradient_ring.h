// The gradient ring (plan.h): which gradient buckets share host bytes, and who hands them to whom.
//
// Gradients take their bytes one after another, in the order of their offloads, and from the begin again
// where the rest is too small:
//
//   in 256 bytes   0   1   2   3   4   5   6   7   8
//   g5, g4         [  g5  ][      g4      ]
//   g3             [    g3    ]                      behind the updates by g5 and g4
//   g2                         [      g2      ]      behind that by g4
//   g1             [    g1    ]                      behind that by g3
//
// A gradient that is cut and larger than the ring takes all of it, for as many of its slices as fit. These
// take turns: the offload of each slice stands behind the update by the slice that had its bytes. Its arena
// bytes are its own until the last of them has left.
//
//   g0, 5 slices   [  s0  ][  s1  ][  s2  ]          behind the updates by all others
//                  [  s3  ][  s4  ]                  s3 behind that by s0, s4 behind that by s1
#pragma once

#include <map>
#include <vector>

#include "offload/plan/schedule/lifetimes.h"

namespace stowage {

// By bucket: the position behind which its last transfer of the step stands; 0 without transfers.
std::vector<Position> last_transfers(const Draft& draft, const BucketLayout& layout);

// The ring has this part of its gradients' bytes: 0.25 bytes for each parameter whose gradient is bf16.
inline constexpr Bytes ring_part = 8;

struct GradientRing {
  struct Turn {
    Bytes offset = 0;
    std::size_t slices = 0;  // how many of its slices have bytes there at a time; 0: it is there as a whole
    std::vector<BucketId> after;  // gradient buckets that had some of its bytes just before, in the same step
  };
  Bytes bytes = 0;
  std::map<BucketId, Turn> turns;  // of the gradient buckets in it
};

// Has the gradients of updates before the gate, where these are made for good
// (EarlyUpdates::final), but for those that rest on the host as sums of micro-batches. Has a
// ring_part-th of their bytes, the two largest at least (of a gradient that is cut, two slices), and more
// where a gradient would otherwise leave before an update that has to come first stands in the plan. In that
// order, one that leaves by slices follows the others that leave behind the same op, and their updates; and
// such ones follow each other by the number of their bucket.
GradientRing gradient_ring(const Draft& draft, const BucketLayout& layout);

}  // namespace stowage
