// The searches: layers into stages, stages onto devices (docs/parallel.md).
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "offload/parallel/costs.h"
#include "offload/parallel/stage_costs.h"

namespace stowage {

struct PlacedStage {
  int first = 0, last = 0;  // layers [first, last)
  int layout = 0;           // of StageCosts::layouts
  int index = 0;            // StageCosts::index_step
  StageOption option;
};

// Stages in the order of the layers.
struct Pipeline {
  std::vector<PlacedStage> stages;
  double way = 0;   // sum over the stages
  double pace = 0;  // largest of the stages
  double tail = 0;  // largest of the stages

  double step_seconds(std::int64_t micro_batches) const {
    return way + static_cast<double>(micro_batches - 1) * pace + tail;
  }
};

// Techniques of the exact search, for tests and ablations.
struct SearchTechniques {
  bool bounds = true;                // drop labels that cannot beat the best pipeline that is known
  std::size_t most_labels = 10'000;  // in one cell; more: caps on pace and tail are enumerated instead
};

struct SearchQuestion {
  int devices = 1;
  bool use_all_devices = false;
  std::int64_t micro_batches = 1;
  ParallelObjective objective = ParallelObjective::step;
  std::vector<int> layouts;                           // that a stage may have; empty: any
  double below = infinite_seconds;                    // only pipelines of less value count
  std::uint64_t most_work = std::uint64_t{1} << 36U;  // combinations of a stage and the stages behind it
  SearchTechniques techniques{};
  // Called now and then with the work so far; false ends the search.
  std::function<bool(std::uint64_t work)> keep_going = [](std::uint64_t) { return true; };

  // Returns what the objective says of a pipeline of these totals.
  double value(double way, double pace, double tail) const {
    if (objective == ParallelObjective::largest_stage) return pace;
    return way + static_cast<double>(micro_batches - 1) * pace + tail;
  }
  double value(const Pipeline& pipeline) const { return value(pipeline.way, pipeline.pace, pipeline.tail); }
};

struct SearchAnswer {
  std::optional<Pipeline> best;
  // No pipeline has a value below this. Equal to that of `best` if `proven`.
  double bound = 0;
  bool proven = true;    // false: the search ended before it knew that nothing is better
  bool stopped = false;  // keep_going said so
  std::uint64_t work = 0;
};

// Finds the pipeline of least value. Keeps, for each number of layers and devices and each index, all triples
// (way, pace, tail) that none dominates; where they become too many, enumerates caps on pace and tail and
// makes the way shortest below them.
SearchAnswer search_pipeline(StageCosts& costs, const SearchQuestion& question);

// The second of the two methods alone.
SearchAnswer search_by_caps(StageCosts& costs, const SearchQuestion& question);

// The dynamic program as the source paper prints it: one value a cell, the least step of the layers behind,
// in O(layers^2 devices^2) combinations, counted in SearchAnswer::work. It may miss the best pipeline:
// `proven` is false. With `costs` of GPipe all micro-batches count as in flight, as printed.
SearchAnswer search_as_printed(StageCosts& costs, const SearchQuestion& question);

// The best grid of one shape.
struct GridAnswer {
  int layout = 0;
  int stages = 0;
  SearchAnswer answer;  // `best` is set
};

struct GridsAnswer {
  std::vector<GridAnswer> grids;  // by rising value
  bool proven = true;  // false: the search ended before it knew that no other grid is among the best
  bool stopped = false;
  std::uint64_t work = 0;
};

// Returns the best `most` grids: of each layout that is not mixed and each number of stages the best one.
GridsAnswer search_grids(StageCosts& costs, const SearchQuestion& question, std::size_t most = 6);

}  // namespace stowage
