// Lower bound on the step time of any plan under a budget (docs/planning.md, "The lower bound").
#pragma once

#include <string>

#include "offload/plan/problem/problem.h"

namespace stowage {

struct StepBound {
  double seconds = 0;    // the time of one step
  std::string bound_by;  // Plan::bound_by
};

// Returns a lower bound on the step time of all plans that run the program's order and update each parameter
// where its optimizer state lives. The bound counts only what every such plan must do:
// - Each op runs once.
// - A parameter may be resident with its state. Otherwise it comes in for forward and, unless it is held,
//   again for backward; its gradient goes out in backward; and the host updates it, late (before forward
//   ends) or in backward: with an undo record, or for good.
// - A value that a forward op leaves for backward is kept, or crosses the link twice, or costs at least one
//   more run of that op.
// - Bytes with a place on the host at any time of the step have it for the whole step, and all of them fit
//   into host memory: inputs; each parameter that is not resident, with its state, its gradient and its undo
//   record (without gradient and record if it is updated for good in backward); and values that cross the
//   link between forward and backward.
// - The bytes on the device when forward turns into backward fit beside the operands of the turn's op. At the
//   gate the residents' gradients, which never leave, fit beside the residents.
// - The gate is behind backward, and no step is clipped. So a step is no shorter than the busiest lane of its
//   front plus the busiest lane of its back.
// - An op hides no more of a link's work than there is room for beside its operands (costs.h).
//
// The bound is the value of a linear program over fractions of each decision's options
// (share_program.h). Rounding errors in its solution cannot make the bound too high. `budget.device`:
// bytes of the arena, without Machine::overhead_bytes.
StepBound lower_bound(const Problem& problem, const Budget& budget);

}  // namespace stowage
