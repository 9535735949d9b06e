// A mixed-integer program for instances that the exhaustive search is too slow for, solved by CBC.
//
// A relaxation: what it gives is a lower bound for every plan, and planner over bound is an upper bound of
// the planner's gap. It decides, for each parameter, residency, and in which gaps between its uses it is
// away; for each value that backward reads, keep, offload or recompute. Under these it keeps
// - at each forward and backward op: the bytes that are live there at the very least fit (bytes in flight,
// copies
//   and the bytes of a replay itself are left out, and so are placement and alignment);
// - each lane: its work fits in the step, and before each op stands the traffic that it and earlier ops need,
// and
//   behind it the traffic that it and later ops leave (waits of lanes for each other are otherwise left out).
// Parameters may share buckets in a plan: so their transfers cost no latency here.
#pragma once

#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage::oracle {

struct MipBound {
  double seconds = 0;    // no plan is faster; infinite: no plan fits
  bool optimal = false;  // of the relaxation; false: stopped early, still a bound
};
// As many seconds of work at most. For graphs without aliases and updates in place (game.h).
MipBound mip_bound(const Graph& graph, const Machine& machine, Bytes device, double most_seconds);

}  // namespace stowage::oracle
