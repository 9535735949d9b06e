// One step of the answer of `stowage parallel` as a trace.
#pragma once

#include <string>
#include <vector>

#include "tools/answer/parallel_answer.h"

namespace stowage {

inline constexpr std::int64_t most_traced_events = std::int64_t{1} << 20;

// Throws InvalidInput if a pipeline of these costs may have more than most_traced_events events in a step.
void require_traceable(const ParallelCosts& costs);

// Returns the events of a pipeline as Chrome's trace events, which Perfetto opens: a row for each stage with
// its name, and behind its last backward a span `tail` of so many seconds, if they are above 0.
std::string trace_of_pipeline(PipelineQuestion question, const std::vector<std::string>& names,
                              const std::vector<double>& tail_seconds, const std::string& tail);

// Returns a step of the best candidate under the costs' schedule, by the simulation, with the exchange of
// gradients behind each stage's last backward.
std::string trace_of_step(const ParallelCosts& costs, const ParallelAnswer& answer);

}  // namespace stowage
