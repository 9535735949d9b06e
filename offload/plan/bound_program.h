// The linear program behind the lower bound: what each decision may cost on each lane and in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "offload/plan/candidate.h"
#include "offload/plan/share_program.h"

namespace stowage {

// Device memory is a row at each of some *moments*: while one op runs, beside its operands; and at the gate,
// where each resident parameter has its gradient beside it. With one micro-batch the moments are the op with
// most operand bytes in each of most_bound_windows equal parts of the program, and that of the unit in which
// forward turns into backward. Of several micro-batches, whose order is the planner's choice, they are the
// latter and the largest op of all.
inline constexpr std::size_t most_bound_windows = 16;

struct BoundProgram {
  double seconds = 1;  // unit of time
  double bytes = 1;    // unit of memory
  // From the gate to the turn, as its front: the updates of the step before and forward; its back from there
  // to the next gate. A row of memory for each moment, with room for what the decisions have on the device.
  ShareProgram shares;
};

// How the link's directions count: each apart, or each with what the other one leaves of it where both move
// (machine.h). What an op cannot hide then counts for less, so either may be the sharper.
enum class BoundLinks : std::uint8_t { apart, shared };

BoundProgram make_bound_program(const Problem& problem, Bytes device_budget, BoundLinks links);

}  // namespace stowage
