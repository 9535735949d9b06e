// The answer of `stowage parallel` for a model on a cluster: the best grid by plans of its stages, what each
// stage does, and what others' rules would take under the same costs.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "tools/cli/model_costs.h"

namespace stowage {

// A rule of others, and the grid that it gives.
struct OthersGrid {
  std::string name;
  std::optional<Grid> grid;  // not set: it does not fit
  // True: only its lower bound was computed, since that is no better than the best grid.
  bool is_bound = false;
};

struct ClusterAnswer {
  GridSearchAnswer search;
  std::vector<OthersGrid> others;
  std::vector<std::string> half_blocks;       // names
  Budget budget{};                            // of each device of the best grid
  std::uint64_t tokens = 0;                   // of a step
  std::optional<Infeasible> least_refused{};  // of the stages that do not fit; set only if no grid fits
  double watts = 0;  // of all devices and nodes at work in the best grid; 0: not known

  bool feasible() const { return !search.grids.empty(); }
  const Grid& best() const { return search.grids.front(); }
  double gap() const { return search.bound > 0 ? best().step_seconds / search.bound - 1 : 0; }
};

struct ClusterLimits {
  std::uint64_t most_work = 60;  // plans of stages
  std::function<bool(const std::string& doing)> keep_going = [](const std::string&) { return true; };
};

ClusterAnswer answer(const ClusterQuestion& question, const ClusterLimits& limits,
                     double watts_per_device = 0, double watts_per_node = 0);

std::string describe(const ClusterQuestion& question, const ClusterAnswer& answer);
nlohmann::ordered_json to_json(const ClusterQuestion& question, const ClusterAnswer& answer);
// Returns one step of the best grid, as trace_of_pipeline does: stages take their ways, and at the end the
// rest of their own seconds. Throws InvalidInput if that is more than most_traced_events events. Requires a
// grid that fits.
std::string trace_of(const ClusterAnswer& answer);
// Returns the command with today's programs that trains by this grid; empty: there is none.
std::string command_of(const ClusterQuestion& question, const Grid& grid);

}  // namespace stowage
