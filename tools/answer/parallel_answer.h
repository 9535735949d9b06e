// The answer of `stowage parallel`: the best grid, what is beside it, and how the finalists are timed again
// by a simulation; for people, as JSON and as a trace.
#pragma once

#include <nlohmann/json.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "offload/parallel/pipeline.h"
#include "offload/parallel/stage_table.h"

namespace stowage {

// Seconds of a step by the simulation, exchange of gradients included. Not set: there is no such schedule
// (too few layers, micro-batches that the stages do not divide, no memory for it), or it has too many events.
struct SimulatedSteps {
  std::optional<double> gpipe, one_f_one_b, interleaved_2, interleaved_4;
};

// A pipeline that was found, and what its stages do.
struct ParallelCandidate {
  Pipeline pipeline;
  std::optional<StageLayout> grid;  // of all its stages; not set: it is no grid
  double value = 0;                 // of the objective
  double step_seconds = 0;
  std::vector<StageDetail> stages;
  std::vector<StageLayout> layouts;  // of each stage
  std::vector<double> bubbles;  // share of the step in which a stage has nothing to do, by the simulation of
                                // the costs' schedule; empty: not simulated
  SimulatedSteps simulated;
};

// What a simpler search finds under the same costs.
struct SimplerSearch {
  std::string name;
  std::optional<double> step_seconds;  // not set: it finds no pipeline
};

struct ParallelAnswer {
  std::vector<ParallelCandidate> grids;          // the best ones, by rising value
  std::optional<ParallelCandidate> best_of_all;  // with grids: only if it is better than the best of them
  std::vector<SimplerSearch> simpler;
  bool proven = true;    // false: the search ended early, at its limit or because it was asked to
  bool stopped = false;  // it was asked to
  double bound = 0;      // no pipeline at all has a value below this
  std::uint64_t work = 0;
  // Of the least memory in which one would fit, where none does: of any pipeline, and of grids.
  std::optional<LeastMemory> least, least_grid;

  bool feasible() const { return !grids.empty() || best_of_all.has_value(); }
  const ParallelCandidate& best() const { return grids.empty() ? *best_of_all : grids.front(); }
};

struct ParallelLimits {
  std::uint64_t most_work = SearchQuestion{}.most_work;
  std::function<bool(std::uint64_t work)> keep_going = [](std::uint64_t) { return true; };
};

// Searches. Throws InvalidInput for costs that check_costs refuses.
ParallelAnswer answer(const ParallelCosts& costs, const ParallelLimits& limits);

// Returns lines and a table of the stages.
std::string describe(const ParallelCosts& costs, const ParallelAnswer& answer);
nlohmann::ordered_json to_json(const ParallelCosts& costs, const ParallelAnswer& answer);
// Returns a sentence that says why no pipeline fits and what would do.
std::string refusal(const ParallelCosts& costs, const ParallelAnswer& answer);

// Returns the trace of one step of the best candidate, which Perfetto opens: a row for each stage. Throws
// InvalidInput for a step of more than most_traced_events events.
std::string trace_of_step(const ParallelCosts& costs, const ParallelAnswer& answer);
inline constexpr std::int64_t most_traced_events = 200'000;

// Returns the simulation's question about a candidate under the costs' schedule.
PipelineQuestion simulation_of(const ParallelCosts& costs, const ParallelCandidate& candidate);

}  // namespace stowage
