// Finalists of `stowage parallel` under the schedules that trainers use.
#pragma once

#include <functional>

#include "tools/answer/parallel_answer.h"

namespace stowage {

// Events of one simulation; an answer has some twenty simulations.
inline constexpr std::int64_t most_simulated_events = std::int64_t{1} << 21;

// Returns the candidate that a pipeline of this table is, without its schedules.
ParallelCandidate candidate_of(const ParallelCosts& costs, StageTable& table, const Pipeline& pipeline);

// Returns the simulation's question about a candidate under the costs' schedule. A send takes half of the
// seconds that both directions take; what it loses to the link's latency does not keep the link busy.
PipelineQuestion simulation_of(const ParallelCosts& costs, const ParallelCandidate& candidate);

// Searches within the caller's limits, and counts the work.
using ChunkSearch = std::function<SearchAnswer(StageTable&, SearchQuestion)>;

// Sets the candidate's schedules and bubbles. Chunks of virtual stages are layers cut anew: as equal as can
// be, in the grid's layout. What a stage's chunks have in flight at once has to fit in its memory, and their
// exchanges of gradients add up.
void time_schedules(const ParallelCosts& costs, const ChunkSearch& search, ParallelCandidate& candidate);

}  // namespace stowage
