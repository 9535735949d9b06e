// The linear program behind the lower bound (bound.h): the least cost of each option of each decision, on
// each lane and in memory. A mixture of a decision's options costs no more than the plans that it stands for.
#pragma once

#include <vector>

#include "offload/plan/bound/costs.h"

namespace stowage {

struct BoundProgram {
  double seconds = 1;  // the unit of time
  double bytes = 1;    // the unit of device memory
  // The front goes from the gate to the turn: the updates of the step before, and forward. The back goes from
  // the turn to the next gate. Each BoundRows::Row (rows.h) is a memory row; its room is the budget less the
  // operands of its op. Limited host memory is one row more, in a unit of its own.
  ShareProgram shares;
};

// `budget.device`: bytes of the arena, without Machine::overhead_bytes; unlimited: memory does not count.
BoundProgram make_bound_program(const Problem& problem, const Budget& budget, BoundLinks links);

// Returns one decision for each parameter: streamed or held, each updated late or early; or resident.
std::vector<ShareDecision> parameter_decisions(const BoundCosts& costs);
// Returns one decision for each value that forward leaves for backward. With one micro-batch: one for each
// pause between two uses of a value, or of several values that one op makes.
std::vector<ShareDecision> activation_decisions(const BoundCosts& costs);

}  // namespace stowage
