// The linear program behind the lower bound: what each decision may cost on each lane and in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "offload/plan/candidate.h"
#include "offload/plan/share_program.h"

namespace stowage {

struct BoundProgram {
  double seconds = 1;  // unit of time
  double bytes = 1;    // unit of memory
  // The front goes from the gate to the turn: the updates of the step before, and forward. The back goes from
  // the turn to the next gate. Memory has a row for each moment (bound_moments.h), whose room is the budget
  // less the operands there.
  ShareProgram shares;
};

// How the link's directions count: each apart, or each with a part of the other one's time added, since both
// are slower while both move (machine.h). With the second the part of a transfer that no op can hide counts
// for less, so either of the two bounds may be the higher one.
enum class BoundLinks : std::uint8_t { apart, shared };

BoundProgram make_bound_program(const Problem& problem, Bytes device_budget, BoundLinks links);

}  // namespace stowage
