// A mixed-integer program for instances that the exhaustive search is too slow for, solved by CBC.
//
// A relaxation: it gives a lower bound for every plan, and planner over bound is an upper bound of the
// planner's gap. It decides, for each parameter, residency, whether its update on the host is early, and in
// which gaps between its uses it is away; for each value that backward reads, keep, offload or recompute. It
// demands this:
// - At each forward and backward op the bytes fit that are live there at the very least. Bytes in flight,
//   copies and the bytes of a replay itself are left out, and so are placement and alignment.
// - All that is ever on the host fits there: what is loaded with its gradient and its state, undo records,
//   offloaded values, and what every plan has there.
// - Each lane's work fits in the step. Before each op stands the traffic that it and earlier ops need, and
//   behind it the traffic that it and later ops leave; likewise the late updates of what they read, and the
//   early updates by gradients that they make. Otherwise no lane waits for another.
// Parameters may share buckets in a plan, so their transfers cost no latency here.
#pragma once

#include "stowage/graph.h"
#include "stowage/machine.h"

namespace stowage::oracle {

struct MipBound {
  double seconds = 0;    // no plan is faster; infinite: no plan fits
  bool optimal = false;  // of the relaxation; false: stopped early, still a bound
};
// CBC works at most `most_seconds`. For graphs without aliases and updates in place (game.h).
MipBound mip_bound(const Graph& graph, const Machine& machine, const Budget& budget, double most_seconds);

}  // namespace stowage::oracle
