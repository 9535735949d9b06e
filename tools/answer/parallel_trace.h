// One step of the answer of `stowage parallel` as a trace.
#pragma once

#include "tools/answer/parallel_answer.h"

namespace stowage {

inline constexpr std::int64_t most_traced_events = std::int64_t{1} << 20;

// Throws InvalidInput if a pipeline of these costs may have more than most_traced_events events in a step.
void require_traceable(const ParallelCosts& costs);

// Returns a step of the best candidate under the costs' schedule, by the simulation, as Chrome's trace
// events, which Perfetto opens: a row for each stage, the exchange of gradients behind its last backward.
std::string trace_of_step(const ParallelCosts& costs, const ParallelAnswer& answer);

}  // namespace stowage
