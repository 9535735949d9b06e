// Lower bound on the step time of any plan under a budget (docs/design.md, section 7).
#pragma once

#include <string>

#include "offload/plan/problem/problem.h"

namespace stowage {

struct StepBound {
  double seconds = 0;    // of one step
  std::string bound_by;  // the lane that binds: compute, h2d, d2h, host
};

// No plan that runs the program's order and updates each parameter where its optimizer state lives takes
// less. The bound counts only what every such plan must do:
// - Each op runs once.
// - Each parameter is resident with its state. Or it comes in for forward and, unless it is held between,
//   again for backward; its gradient goes out in backward, and its update is done on the host, behind the
//   gate and before forward ends, or in backward: with an undo record, or for good.
// - A value that a forward op leaves for backward is kept, or crosses the link twice, or costs at least that
//   op once more.
// - What has a place on the host at any time of the step has it for the whole step, and all of that fits
//   there: inputs; of a parameter that is not resident itself, its state, its gradient and its undo record
//   (neither of them if it is updated for good in backward); a value that crosses the link between forward
//   and backward.
// - Bytes on the device when forward turns into backward fit beside that op's operands. At the gate the
//   residents' gradients, which never leave, fit beside them.
// - The gate is behind backward, and no step is clipped, so a step is no shorter than the busiest lane of its
//   forward plus the busiest lane of its backward.
// - An op hides no more of a link's work than there is room for beside its operands (costs.h).
//
// The bound is the value of a linear program over shares of each decision (share_program.h). Numerical
// rounding of its solution cannot make the bound too high. `budget.device`: bytes, without
// Machine::overhead_bytes.
StepBound lower_bound(const Problem& problem, const Budget& budget);

}  // namespace stowage
