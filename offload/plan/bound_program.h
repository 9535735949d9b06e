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
  // From the gate to the turn, as its front: the updates of the step before and forward; its back from there
  // to the next gate. A row of memory for each moment (bound_moments.h), with room for what the decisions
  // have on the device.
  ShareProgram shares;
};

// How the link's directions count: each apart, or each with what the other one leaves of it where both move
// (machine.h). What an op cannot hide then counts for less, so either may be the sharper.
enum class BoundLinks : std::uint8_t { apart, shared };

// What the compute lane does between the gate and forward: it updates residents; or it waits until the host
// has updated what it updates of a parameter in slices that the first op reads. Until then nothing of forward
// is there that could leave, either. The two may overlap, so either may be the sharper.
enum class BoundStart : std::uint8_t { updates, waits };
BoundProgram make_bound_program(const Problem& problem, Bytes device_budget, BoundLinks links,
                                BoundStart start = BoundStart::updates);

}  // namespace stowage
