// Cuts: ops at which the step's front or back is counted in two pieces, one behind the other.
//
// No op of forward runs before the host has updated all parameters that this op or an op before it reads. So
// the front is no shorter than these updates and the ops behind this op together, whichever op it is. The
// back is no shorter than the ops before some op of backward and the transfers to the host of the gradients
// that are made from that op on; nor than these ops and the early updates with these gradients. Cuts are put
// where the two pieces together are longest, if all parameters are on the host or some fraction of them is.
#pragma once

#include <vector>

#include "offload/plan/decisions/share_program.h"
#include "offload/plan/problem/problem.h"

namespace stowage {

struct StepCuts {
  // Cuts of the front and of the back, at most share_cuts each. Both are empty if the plan's order
  // is not the program's.
  std::vector<OpId> front, back;
  std::vector<OpId> updates;  // cuts of the back for early updates: at most update_cuts
  // Indexed by parameter tensor: the first op that reads it, and the op that makes its final gradient.
  std::vector<OpId> first_read, gradient_op;

  // Adds a cut of the front where the front is longest if the host works host[op] seconds before each op. Has
  // no effect if the front has no cuts, or share_cuts of them.
  void cut_front(const Problem& problem, const std::vector<double>& host);

  // Adds the op's seconds at the cuts that count them: cuts of the front before the op, or cuts of the
  // back behind it.
  void add_op(OpId op, bool in_front, double seconds, ShareCost& fixed) const;
  // Adds work that the host does before `op`, at the cuts of the front that stand at `op` or behind it.
  void add_before(OpId op, double seconds, ShareCost& cost) const;
  // Adds a late update at cuts of the front, or an early update at cuts of the back.
  void add_update(TensorId parameter, double seconds, ShareCost& cost) const;
  void add_early_update(TensorId parameter, double seconds, ShareCost& cost) const;
  // Adds the transfer of a gradient to the host at cuts of the back.
  void add_offload(TensorId parameter, double seconds, ShareCost& cost) const;
};
// Finds at most `count` cuts of the front, and as many of the back.
StepCuts find_cuts(const Problem& problem, std::size_t count);

}  // namespace stowage
