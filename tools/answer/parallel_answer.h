// The answer of `stowage parallel`: the best grid, what is beside it, and how the finalists are timed again
// by a simulation; for people and as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "offload/parallel/pipeline.h"
#include "offload/parallel/stage_table.h"

namespace stowage {

enum class ScheduleOutcome : std::uint8_t {
  timed,
  impossible,    // too few layers for the chunks, or the stages do not divide the micro-batches
  no_memory,     // what it has in flight is above the memory of a device
  not_searched,  // the search for the chunks ended early, or there are too many events or cells
};
std::string_view to_string(ScheduleOutcome outcome);

// A step under one schedule, by the simulation.
struct ScheduledStep {
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int virtual_stages = 1;
  ScheduleOutcome outcome = ScheduleOutcome::impossible;
  double seconds = 0;  // if timed; the exchange of gradients included
};
std::string name_of(const ScheduledStep& step);  // "GPipe", "1F1B", "interleaved 2"

// A pipeline that was found, and what its stages do.
struct ParallelCandidate {
  Pipeline pipeline;
  std::optional<StageLayout> grid;  // of all its stages; not set: it is no grid
  double value = 0;                 // of the objective
  double step_seconds = 0;
  std::vector<StageDetail> stages;
  std::vector<StageLayout> layouts;  // of each stage
  // Share of the step in which a stage has nothing to do, by the simulation of the costs' schedule; empty:
  // not simulated.
  std::vector<double> bubbles;
  std::vector<ScheduledStep> schedules;  // GPipe, 1F1B, interleaved with 2 and with 4 virtual stages
};

// A simpler search, and the pipeline that it finds under the same costs.
struct SimplerSearch {
  std::string name;
  std::optional<double> step_seconds;  // not set: it finds no pipeline
  bool ended = false;                  // before it was through: at the limit, or because it was asked to
};

struct ParallelAnswer {
  std::vector<ParallelCandidate> grids;          // the best ones, by rising value
  std::optional<ParallelCandidate> best_of_all;  // no grid, and better than the best one
  std::vector<SimplerSearch> simpler;
  bool grids_proven = true;       // false: the search ended before it knew that no grid is better
  bool proven = true;             // the same of all pipelines
  bool stopped = false;           // a search ended because it was asked to
  double bound = 0;               // no pipeline at all has a value below this
  std::uint64_t work = 0;         // of the searches over grids and over all pipelines
  std::uint64_t work_beside = 0;  // of the simpler ones, and for the chunks of virtual stages
  // The least memory in which a pipeline, or a grid, would fit. Set only where none does.
  std::optional<LeastMemory> least, least_grid;

  bool feasible() const { return !grids.empty() || best_of_all.has_value(); }
  const ParallelCandidate& best() const { return grids.empty() ? *best_of_all : grids.front(); }
  // Returns by how much the best one is above the bound, as a fraction of the bound.
  double gap() const { return bound > 0 ? best().value / bound - 1 : 0; }
};

struct ParallelLimits {
  std::uint64_t most_work = SearchQuestion{}.most_work;  // of all searches together
  std::function<bool(std::uint64_t work)> keep_going = [](std::uint64_t) { return true; };
};

// Searches. Throws InvalidInput for costs that check_costs refuses.
ParallelAnswer answer(const ParallelCosts& costs, const ParallelLimits& limits);

// A schedule of a finalist that the simulation says is faster than the answer under the costs' schedule.
struct FasterSchedule {
  const ParallelCandidate* candidate;  // in the answer
  const ScheduledStep* step;
};
std::optional<FasterSchedule> fastest_by_simulation(const ParallelCosts& costs, const ParallelAnswer& answer);

// Returns lines and two tables: the stages, the finalists.
std::string describe(const ParallelCosts& costs, const ParallelAnswer& answer);
nlohmann::ordered_json to_json(const ParallelCosts& costs, const ParallelAnswer& answer);
// Returns a sentence that says why there is no pipeline, and what would do.
std::string refusal(const ParallelCosts& costs, const ParallelAnswer& answer);

}  // namespace stowage
