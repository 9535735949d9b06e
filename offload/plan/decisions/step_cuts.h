// Ops at which a phase of the step is counted in two pieces, one behind the other.
//
// No op of forward runs before the host has updated all parameters that it or an op before it reads. So the
// step's front is no shorter than those updates and the ops behind it together, whichever op it is. And its
// back is no shorter than the ops before one of backward's and the way to the host of gradients that are made
// from there on; nor than those ops and the updates that these gradients go into before the gate. Such ops
// are looked for with all parameters on the host, or some share of each.
#pragma once

#include <vector>

#include "offload/plan/decisions/share_program.h"
#include "offload/plan/problem/problem.h"

namespace stowage {

struct StepCuts {
  // Program order is the plan's: without that there are none. At most share_cuts each.
  std::vector<OpId> front, back;
  std::vector<OpId> updates;  // of the back, for updates before the gate: at most update_cuts
  // By tensor, of parameters: the first op that reads it, and the one that makes its final gradient.
  std::vector<OpId> first_read, gradient_op;

  // One more cut of the front: where it is longest with so many seconds of the host's work by op. None if
  // there are share_cuts.
  void cut_front(const Problem& problem, const std::vector<double>& host);

  // Adds what comes behind the cuts of the front, and before those of the back.
  void add_op(OpId op, bool in_front, double seconds, ShareCost& fixed) const;
  // Adds what the host does before the cuts of the front that stand at `op` or behind it.
  void add_before(OpId op, double seconds, ShareCost& cost) const;
  // Adds an update behind the gate, which stands before cuts of the front, and one before it, behind cuts of
  // the back.
  void add_update(TensorId parameter, double seconds, ShareCost& cost) const;
  void add_early_update(TensorId parameter, double seconds, ShareCost& cost) const;
  // Adds a gradient's way to the host, behind cuts of the back.
  void add_offload(TensorId parameter, double seconds, ShareCost& cost) const;
};
// At most `count` of the front, and of the back.
StepCuts find_cuts(const Problem& problem, std::size_t count);

}  // namespace stowage
