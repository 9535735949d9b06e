// The linear program behind the lower bound (bound.h): the least that each option of each decision costs on
// each lane and in memory.
#pragma once

#include "offload/plan/bound/costs.h"

namespace stowage {

struct BoundProgram {
  double seconds = 1;  // unit of time
  double bytes = 1;    // unit of device memory
  // The front goes from the gate to the turn: the updates of the step before, and forward. The back goes from
  // the turn to the next gate. Memory has a row for each moment (moments.h); its room is the budget
  // less the operands of the moment's op. Host memory, where it has a limit, is one row more, in a unit of
  // its own.
  ShareProgram shares;
};

// `budget.device`: bytes of the arena, without Machine::overhead_bytes; unlimited: memory does not count.
BoundProgram make_bound_program(const Problem& problem, const Budget& budget, BoundLinks links);

}  // namespace stowage
